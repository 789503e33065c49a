"""Four looks: dark, light, the terminal's own 16 colours, and none at all.

A row of a widget names what a piece of text *is* (a token); the palette says how that looks. So
no widget holds a colour, and a new theme is one table. Colour always comes second: the word or
glyph beside it says the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from tui.glyphs import ASCII, UNICODE, Glyphs

THEME_NAMES = ("dark", "light", "ansi", "mono")

_DARK: Mapping[str, str] = {
    "text": "#d5dbe6",
    "strong": "bold #f2f5fa",
    "dim": "#8791a3",
    "faint": "#49515f",
    "title": "bold #9fb6d9",
    "accent": "#6cb2f7",
    "key": "bold #6cb2f7",
    "good": "#5cc48d",
    "busy": "#4fb3bf",
    "idle": "#76839a",
    "info": "#a99bf0",
    "warning": "#e3b250",
    "critical": "bold #f2736c",
    "stale": "italic #6f7888",
    "power": "#4fb3bf",
    "utilization": "#5cc48d",
    "memory": "#a99bf0",
    "temperature": "#e39a5d",
    "clocks": "#6cb2f7",
    "power-fill": "#2a5c64",
    "utilization-fill": "#31634b",
    "memory-fill": "#544e7c",
    "temperature-fill": "#744f33",
    "clocks-fill": "#3a5b7d",
    "bar-back": "#363d4a",
    "focus": "bold #11151b on #6cb2f7",
    "cursor-row": "on #232a36",
    "bar-row": "on #1b2029",
    "active-tab": "bold #f2f5fa on #2b3443",
    "badge": "bold #11151b on #e3b250",
    "production": "bold #11151b on #f2736c",
}

_LIGHT: Mapping[str, str] = {
    "text": "#25303d",
    "strong": "bold #0d1520",
    "dim": "#5c6878",
    "faint": "#b3bcc8",
    "title": "bold #34547d",
    "accent": "#1a66b8",
    "key": "bold #1a66b8",
    "good": "#177245",
    "busy": "#0c7480",
    "idle": "#68758a",
    "info": "#6046c2",
    "warning": "#96610a",
    "critical": "bold #c22a22",
    "stale": "italic #8690a0",
    "power": "#0c7480",
    "utilization": "#177245",
    "memory": "#6046c2",
    "temperature": "#a8540f",
    "clocks": "#1a66b8",
    "power-fill": "#8fc4ca",
    "utilization-fill": "#98c9af",
    "memory-fill": "#b9addf",
    "temperature-fill": "#dcb795",
    "clocks-fill": "#9fc0e2",
    "bar-back": "#cdd4dd",
    "focus": "bold #ffffff on #1a66b8",
    "cursor-row": "on #dfe6f0",
    "bar-row": "on #e9edf2",
    "active-tab": "bold #0d1520 on #cfd9e8",
    "badge": "bold #ffffff on #96610a",
    "production": "bold #ffffff on #c22a22",
}

_ANSI: Mapping[str, str] = {
    "text": "default",
    "strong": "bold default",
    "dim": "bright_black",
    "faint": "bright_black",
    "title": "bold cyan",
    "accent": "blue",
    "key": "bold blue",
    "good": "green",
    "busy": "cyan",
    "idle": "default",
    "info": "magenta",
    "warning": "yellow",
    "critical": "bold red",
    "stale": "bright_black",
    "power": "cyan",
    "utilization": "green",
    "memory": "magenta",
    "temperature": "yellow",
    "clocks": "blue",
    "power-fill": "cyan",
    "utilization-fill": "green",
    "memory-fill": "magenta",
    "temperature-fill": "yellow",
    "clocks-fill": "blue",
    "bar-back": "bright_black",
    "focus": "reverse bold",
    "cursor-row": "reverse",
    "bar-row": "",
    "active-tab": "reverse bold",
    "badge": "bold reverse yellow",
    "production": "bold reverse red",
}

_MONO: Mapping[str, str] = {
    "text": "",
    "strong": "bold",
    "dim": "",
    "faint": "dim",
    "title": "bold",
    "accent": "",
    "key": "bold",
    "good": "",
    "busy": "",
    "idle": "",
    "info": "",
    "warning": "bold",
    "critical": "bold underline",
    "stale": "dim",
    "power": "",
    "utilization": "",
    "memory": "",
    "temperature": "",
    "clocks": "",
    "power-fill": "",
    "utilization-fill": "",
    "memory-fill": "",
    "temperature-fill": "",
    "clocks-fill": "",
    "bar-back": "dim",
    "focus": "reverse bold",
    "cursor-row": "reverse",
    "bar-row": "",
    "active-tab": "reverse bold",
    "badge": "reverse bold",
    "production": "reverse bold",
}

_BACKGROUND = {"dark": "#11151b", "light": "#f6f8fa"}
_TABLES = {"dark": _DARK, "light": _LIGHT, "ansi": _ANSI, "mono": _MONO}


@dataclass(frozen=True)
class Palette:
    """Tokens to styles, each combination made once."""

    name: str
    styles: Mapping[str, Style]
    _combined: dict[tuple[str, str], Style] = field(default_factory=dict, repr=False)

    def style(self, base: str, token: str) -> Style:
        """How `token` looks on a row of kind `base` (`text` for an ordinary one)."""
        key = (base, token)
        style = self._combined.get(key)
        if style is None:
            ground, own = self.styles[base], self.styles[token]
            if ground.reverse:
                # Reversed colours would make a patchwork of the row.
                own = Style(bold=own.bold, underline=own.underline)
            style = self.styles["text"] + ground + own
            if token == "text" != base:
                style = self.styles["text"] + self.styles[base]
            self._combined[key] = style
        return style


def palette(name: str) -> Palette:
    """The palette of a theme."""
    background = _BACKGROUND.get(name)
    ground = Style(bgcolor=background) if background else Style()
    styles = {token: Style.parse(text) for token, text in _TABLES[name].items()}
    styles["text"] = ground + styles["text"]
    return Palette(name, styles)


def choose(wanted: str, environment: Mapping[str, str] = os.environ) -> str:
    """The theme to use: `wanted`, or for `auto` what this terminal can show.

    `NO_COLOR` wins over everything (https://no-color.org). Without 24-bit colour the terminal's
    own 16 are used, which follow its light or dark background by themselves.
    """
    if environment.get("NO_COLOR") or wanted == "mono":
        return "mono"
    if wanted != "auto":
        return wanted
    if environment.get("COLORTERM", "").lower() not in ("truecolor", "24bit"):
        return "ansi"
    # COLORFGBG is `foreground;background` in the 16-colour numbering (rxvt, konsole and others).
    ground = environment.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in ("7", "15") else "dark"


def textual_theme(name: str) -> Theme:
    """The same look for what Textual draws itself (inputs, notices, dialogs' frames)."""
    if name in ("dark", "light"):
        table = {key: _last_word(text) for key, text in _TABLES[name].items()}
        return Theme(
            name=f"gpuroom-{name}",
            primary=table["accent"],
            secondary=table["busy"],
            warning=table["warning"],
            error=table["critical"],
            success=table["good"],
            accent=table["info"],
            foreground=table["text"],
            background=_BACKGROUND[name],
            surface="#171c24" if name == "dark" else "#ffffff",
            panel="#1b2029" if name == "dark" else "#e9edf2",
            dark=name == "dark",
        )
    return replace(BUILTIN_THEMES["ansi-dark"], name=f"gpuroom-{name}")


def _last_word(style: str) -> str:
    return style.split(" on ")[0].split()[-1]


@dataclass(slots=True)
class Look:
    """What a widget is drawn with. One object for the whole room; a new theme changes it."""

    palette: Palette
    glyphs: Glyphs = UNICODE
    version: int = 0

    def set_theme(self, name: str) -> None:
        """Change the palette; widgets notice by `version`."""
        self.palette = palette(name)
        self.version += 1


def make_look(theme: str, *, ascii_set: bool) -> Look:
    """The look of a theme that `choose` has chosen."""
    return Look(palette(theme), ASCII if ascii_set else UNICODE)
