"""The shell around the screens: command line, application, pump, key map, widgets."""
