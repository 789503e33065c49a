"""Every key of gpuroom: one table, from which bindings, footer, help and docs/keys.md are made.

An id is `area.verb`; users give it other keys in `[keys]` of the configuration. Ctrl+B and Ctrl+A
belong to tmux and screen and are never bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FORBIDDEN_KEYS = frozenset({"ctrl+a", "ctrl+b"})


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key does.

    Attributes:
        id: `area.verb`.
        keys: Textual's key names, comma separated.
        method: The action method (`action_METHOD`) and its arguments.
        label: One or two words for the footer.
        help: What it does, in a sentence.
        hint: Place in the footer, lowest first; 0 keeps it out.
        changes_host: Hidden while the host is read-only.
        takes_key: On its own screen its key is meant, not that of an action of everywhere.
        typing_follows: Opens an input. Over a slow link the letters that follow come in the same
            packet, so it must be carried out before the next key is looked at.
    """

    id: str
    keys: str
    method: str
    label: str
    help: str
    hint: int = 0
    changes_host: bool = False
    typing_follows: bool = False
    takes_key: bool = False

    @property
    def area(self) -> str:
        """The part before the dot."""
        return self.id.partition(".")[0]


AREAS: dict[str, str] = {
    "app": "Everywhere",
    "nav": "In lists",
    "host": "Hosts",
    "room": "The room",
    "servers": "Servers",
    "gpus": "GPUs",
    "gpu": "One GPU",
    "processes": "Processes",
    "tuning": "Tuning",
    "own": "What gpuroom made lasting",
    "fleet": "All hosts",
    "bench": "Benchmark",
    "runs": "Benchmark runs of the past",
    "results": "A benchmark result",
    "log": "The log",
    "alerts": "Alerts",
    "journal": "Journal",
    "dialog": "Dialogs",
}

ACTIONS: tuple[Action, ...] = (
    Action("app.quit", "q", "quit", "quit", "Quit. Hosts are left as they are.", 99),
    Action("app.help", "question_mark,f1", "help", "help", "Explain this screen and its keys.", 90),
    Action("app.goto", "colon,ctrl+p", "goto", "go to", "Go to a host, screen or command.", 80, typing_follows=True),
    Action("app.pause", "p", "pause", "pause", "Pause the screen, not the collecting.", 70),
    Action("app.alerts", "A", "alerts", "alerts", "What happened: past alerts.", 60),
    Action("app.journal", "J", "journal", "journal", "Everything that was asked of a host.", 61),
    Action("app.fleet", "f", "fleet", "fleet", "All hosts on one screen.", 50),
    Action("app.runs", "h", "runs", "runs", "Benchmark runs of the past."),
    Action("app.back", "escape,backspace", "back", "back", "Go back; never quits.", 2),
    Action("nav.down", "j,down", "down", "down", "Next item."),
    Action("nav.up", "k,up", "up", "up", "Previous item."),
    Action("nav.top", "g,home", "top", "first", "First item."),
    Action("nav.bottom", "G,end", "bottom", "last", "Last item."),
    Action("nav.right", "right", "right", "right", "Item on the right, where there are columns."),
    Action("nav.left", "left", "left", "left", "Item on the left, where there are columns."),
    Action("nav.page-down", "pagedown,ctrl+d", "page_down", "page down", "One page down."),
    Action("nav.page-up", "pageup,ctrl+u", "page_up", "page up", "One page up."),
    Action("nav.open", "enter", "open", "open", "Open what is under the cursor.", 1),
    Action("host.next", "right_square_bracket", "next_host", "next host", "Next host.", 40),
    Action("host.previous", "left_square_bracket", "previous_host", "previous host", "The one before."),
    Action("host.faster", "plus,equals_sign", "faster", "faster", "Sample more often.", 75),
    Action("host.slower", "minus", "slower", "slower", "Sample less often.", 76),
    Action("host.retry", "c", "retry", "connect", "Connect now, without waiting for the next try."),
    Action("host.unlock", "U", "unlock", "unlock", "Allow changes on a production host."),
    Action("room.pane-1", "1", "pane(1)", "GPUs", "Go to the GPUs."),
    Action("room.pane-2", "2", "pane(2)", "servers", "Go to the servers."),
    Action("room.pane-3", "3", "pane(3)", "tuning", "Go to tuning."),
    Action("room.pane-4", "4", "pane(4)", "benchmark", "Go to the benchmark."),
    Action("room.bench", "b", "bench", "benchmark", "Measure how fast the server serves.", 35),
    Action("room.hide", "H", "hide_pane", "hide pane", "Hide this pane; from the GPUs, all."),
    Action("room.tuning", "t", "tuning", "checklist", "Open the tuning checklist of the host.", 31),
    Action("servers.start", "s", "server_start", "start", "Start the server, after a look at what is in the way and what runs.", 11, changes_host=True),
    Action("servers.stop", "x", "server_stop", "stop", "Stop the server, wholly, after a yes.", 12, changes_host=True),
    Action("servers.restart", "R", "server_restart", "restart", "Stop the server and start it again, after a yes.", 14, changes_host=True),
    Action("servers.log", "l", "server_log", "log", "The log of the server.", 13),
    Action("servers.configuration", "e", "configuration", "configuration", "All that was asked beside what it runs with, or back.", 15),
    Action("servers.bench", "b", "server_bench", "benchmark", "Measure this server.", 16),
    Action("servers.import", "a", "server_import", "profile", "A profile of a server that was found, for the configuration.", 17),
    Action("gpus.sort", "o", "sort", "sort", "Sort by the next column.", 20),
    Action("gpus.reverse", "O", "reverse", "reverse", "Turn the order round."),
    Action("gpus.filter", "slash", "filter", "filter", "Show GPUs that fit: cap, !idle, power<200.", 10, typing_follows=True),
    Action("gpus.mark", "space", "mark", "mark", "Mark a GPU; the graph shows the marked."),
    Action("gpus.window", "w", "window", "window", "History of 60 s, 10 min or 1 h.", 25),
    Action("gpus.processes", "P", "processes", "processes", "What runs on the GPUs.", 30),
    Action("gpu.next", "n,right", "next", "next GPU", "The next GPU of the host.", 20),
    Action("gpu.previous", "N,left", "previous", "previous GPU", "The previous GPU of the host."),
    Action("processes.sort", "o", "sort", "sort", "Sort by the next column.", 20),
    Action("processes.filter", "slash", "filter", "filter", "Show processes that fit: a user, a model, mem>1.", 10, typing_follows=True),
    Action("processes.log", "l", "log", "log", "The log of the process: file, journal, container, tmux.", 15),
    Action("tuning.mark", "space", "mark", "mark", "Mark a finding to be put right.", 10),
    Action("tuning.fix", "f,F", "fix", "fix", "Show what would be done for the marked, and do it after a yes.", 11, takes_key=True),
    Action("tuning.undo", "u", "undo", "take back", "Take the newest change back, after a yes.", 12, changes_host=True),
    Action("tuning.form", "w", "form", "form", "What fixes write: runtime, persistent, or both.", 13),
    Action("tuning.choose", "o", "choose", "show", "Show what is wrong, open, information, passed, waived, all.", 14),
    Action("tuning.filter", "slash", "filter", "filter", "Show findings that fit: pcie, governor, !unknown.", 15, typing_follows=True),
    Action("tuning.group", "v", "group", "groups", "Group by group, or all by worth; Enter folds a group.", 16),
    Action("tuning.judge", "r", "judge", "again", "Read and judge the host again.", 17),
    Action("tuning.measure", "m", "measure", "measure", "Measure under a short load what is inconclusive.", 18),
    Action("tuning.try", "x", "try", "try", "Try a fix: measure, apply, measure, take back; after a yes.", 21, changes_host=True),
    Action("tuning.own", "e", "own", "own files", "What gpuroom made lasting here; remove some of it.", 19),
    Action("tuning.as-root", "S", "as_root", "as root", "Read what only root may, too; asks for sudo's password.", 20),
    Action("tuning.profile", "P", "profile", "profile", "Judge by another profile: default, latency, throughput.", 22),
    Action("tuning.waive", "W", "waive", "waive", "Accept a finding, with a reason and an end; again to change that.", 23),
    Action("tuning.reboot", "B", "reboot", "after boot", "What a reboot of the host will change."),
    Action("own.mark", "space", "mark", "mark", "Mark a setting to be removed.", 10),
    Action("own.remove", "x", "remove", "remove", "Show what removing the marked would be, and do it after a yes.", 11),
    Action("fleet.filter", "slash", "filter", "filter", "Show hosts that fit: a label, a state, power>3000.", 10, typing_follows=True),
    Action("fleet.sort", "o", "sort", "sort", "Sort by the next column.", 20),
    Action("bench.start", "s", "start", "start", "Start the plan under the cursor; after a run, choose again.", 10),
    Action("bench.stop", "x", "stop", "stop", "Stop the run; what was measured is kept.", 11),
    Action("bench.server", "e", "edit_server", "server", "Say which server: a port, a URL or a profile.", 12, typing_follows=True),
    Action("bench.result", "r", "result", "result", "Open the result: every step beside its baseline, curves, the maximum.", 13),
    Action("bench.spread", "d", "spread", "spread", "The spread of another latency: whole, first token, per token.", 26),
    Action("runs.search", "slash", "filter", "search", "Search plan, model, host, GPUs, tags and notes; tag:NAME.", 10, typing_follows=True),
    Action("runs.mark", "space", "mark", "mark", "Mark a run.", 11),
    Action("runs.compare", "C", "compare", "compare", "Compare the marked runs with the first that was marked.", 12),
    Action("runs.tag", "T", "tag", "tag", "Add tags, or take them away (-tag).", 14, typing_follows=True),
    Action("runs.note", "N", "note", "note", "Write a note.", 15, typing_follows=True),
    Action("runs.pin", "B", "pin", "baseline", "Make it the baseline of its profile and plan, or let it go.", 16),
    Action("results.maximum", "m", "maximum", "maximum", "The theoretical maximum: four figures with what each assumes.", 10),
    Action("results.conditions", "i", "conditions", "conditions", "All that produced it: conditions, findings, the ledger of tokens.", 11),
    Action("results.save", "S", "save", "save", "Write it to a file: an SVG picture, JSON, CSV or Markdown.", 20, typing_follows=True),
    Action("log.follow", "F", "follow", "follow", "Follow the log, or stay where one is.", 20),
    Action("log.wrap", "w", "wrap", "wrap", "Wrap long lines, or cut them.", 30),
    Action("log.fold", "z", "fold", "fold", "Fold tracebacks; on a folded one, open it.", 32),
    Action("log.mark", "v,space", "mark", "select", "Begin or end a selection of lines."),
    Action("log.search", "slash", "search", "search", "Search for a regular expression.", 10, typing_follows=True),
    Action("log.next", "n", "search_next", "next", "The next line that fits, further down."),
    Action("log.previous", "N", "search_previous", "previous", "The one before, further up."),
    Action("log.filter", "ampersand", "filter", "filter", "Show only lines that fit; !word: that do not.", 11, typing_follows=True),
    Action("log.level", "L", "level", "level", "Show warnings and worse, then errors, then all.", 13),
    Action("log.rank", "T", "rank", "rank", "Show the rank of this line alone, then all.", 14),
    Action("log.first-error", "e", "first_error", "first error", "The first error of the log.", 15),
    Action("log.next-error", "E", "next_error", "next error", "The next error further down.", 16),
    Action("log.ready", "r", "ready_line", "ready", "The newest line that says ready.", 17),
    Action("log.phase", "P", "phase", "phase", "Show the phase of this line alone, then all."),
    Action("log.next-phase", "right_curly_bracket", "next_phase", "next phase", "The next line that begins a phase of a start, further down."),
    Action("log.previous-phase", "left_curly_bracket", "previous_phase", "previous phase", "The one before, further up."),
    Action("log.time", "at", "time", "time", "The first line at a time: 09:26, or 10m before the end.", 18, typing_follows=True),
    Action("log.copy", "y", "copy", "copy", "Copy the line or the selection to the clipboard.", 34),
    Action("log.save", "S", "save", "save", "Save the lines that are shown to a local file.", 36, typing_follows=True),
    Action("dialog.cancel", "escape", "cancel", "cancel", "Answer no.", 1),
    Action("dialog.accept", "ctrl+y", "accept", "yes", "Answer yes.", 2),
    Action("dialog.more", "pagedown,down", "more", "more", "Further down in what would run."),
    Action("dialog.less", "pageup,up", "less", "less", "Further up in what would run."),
)  # fmt: skip

_BY_ID = {action.id: action for action in ACTIONS}


def find(action_id: str) -> Action | None:
    """The action of that id, or None."""
    return _BY_ID.get(action_id)


def in_area(area: str) -> tuple[Action, ...]:
    """The actions of an area, in order."""
    return tuple(action for action in ACTIONS if action.area == area)


def changing(areas: tuple[str, ...]) -> frozenset[str]:
    """Methods of the actions in these areas that change a host."""
    return frozenset(
        action.method.partition("(")[0]
        for action in ACTIONS
        if action.changes_host and action.area in areas
    )


_KEY_TEXT = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "ampersand": "&",
    "at": "@",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "right_curly_bracket": "}",
    "left_curly_bracket": "{",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "backspace": "Backspace",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "tab": "Tab",
    "f1": "F1",
}


def key_text(key: str) -> str:
    """A key as people write it: `?`, `Esc`, `Ctrl+P`."""
    key = key.strip()
    if key in _KEY_TEXT:
        return _KEY_TEXT[key]
    modifier, plus, rest = key.rpartition("+")
    if plus:
        return "+".join([*(m.capitalize() for m in modifier.split("+")), key_text(rest).upper()])
    return key


def keys_text(keys: str) -> str:
    """All keys of an action: `j Down`."""
    return " ".join(key_text(key) for key in keys.split(","))


def markdown(keymap: Mapping[str, str] | None = None) -> str:
    """docs/keys.md: every action by area, with its keys and its id."""
    lines = [
        "# Keys",
        "",
        "Made from the table of actions by `gpuroom keys --markdown`; `?` shows the same for the",
        "screen one is on. Other keys for an action go into `[keys]` of the configuration, by id:",
        "",
        "```toml",
        "[keys]",
        '"app.journal" = "f9,J"    # one key or several, separated by commas',
        "```",
        "",
        "Ctrl+A and Ctrl+B belong to screen and tmux and can't be used. Ctrl+C does nothing, least",
        "of all on a host.",
    ]
    for area, title in AREAS.items():
        actions = in_area(area)
        if not actions:
            continue
        lines += ["", f"## {title}", "", "| keys | what it does | id |", "| --- | --- | --- |"]
        for action in actions:
            keys = (keymap or {}).get(action.id, action.keys)
            names = ", ".join(f"`{key_text(key)}`" for key in keys.split(","))
            lines.append(f"| {names} | {action.help} | `{action.id}` |")
    return "\n".join(lines) + "\n"
