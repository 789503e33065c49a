"""Widgets: they take frozen values and draw them."""
