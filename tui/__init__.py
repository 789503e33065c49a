"""The shell around the screens: command line, application, pump, key map, widgets."""

VERSION = "0.1.0"
