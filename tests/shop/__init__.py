"""Tests of the project around the product: command line, configuration, packaging."""
