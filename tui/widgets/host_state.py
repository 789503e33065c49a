"""The state of a host in words: link, driver, age. Pure functions."""

from __future__ import annotations

from backends.model import DriverState, HostSnapshot, LinkState
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row, Span, text_row
from tui.widgets.gpu_items import stale_for

LINK_WORDS = {
    LinkState.IDLE: "not connected",
    LinkState.CONNECTING: "connecting",
    LinkState.HOST_KEY: "host key?",
    LinkState.AUTHENTICATING: "authenticating",
    LinkState.STARTING: "starting agent",
    LinkState.LIVE: "live",
    LinkState.STALE: "stale",
    LinkState.LOST: "lost",
    LinkState.REFUSED: "refused",
    LinkState.CLOSED: "closed",
}

LINK_TOKENS = {
    LinkState.LIVE: "good",
    LinkState.STALE: "warning",
    LinkState.HOST_KEY: "warning",
    LinkState.LOST: "critical",
    LinkState.REFUSED: "critical",
    LinkState.CLOSED: "stale",
    LinkState.IDLE: "stale",
}

DRIVER_WORDS = {
    DriverState.MISSING: "no NVIDIA driver",
    DriverState.MISMATCH: "driver and libraries differ",
    DriverState.STUCK: "driver stuck",
    DriverState.RELOADING: "driver reloading",
    DriverState.NO_PERMISSION: "no permission for the GPUs",
    DriverState.ERROR: "driver error",
}

DRIVER_HINTS = {
    DriverState.MISSING: "Install the driver, or load it: `modprobe nvidia`. In a container: "
    "pass the devices and libraries in.",
    DriverState.MISMATCH: "The libraries were updated under a running kernel module: reboot, or "
    "unload and load `nvidia` again.",
    DriverState.STUCK: "A call into the driver has not come back. Values are those from before. "
    "Look at the kernel log for Xid; often only a reboot helps.",
    DriverState.RELOADING: "It went away and is waited for; readings come back by themselves.",
    DriverState.NO_PERMISSION: "Is /dev/nvidia* readable for this user? In a container: are its "
    "device rules right?",
    DriverState.ERROR: "",
}


def host_glyph(snapshot: HostSnapshot, glyphs: Glyphs) -> tuple[str, str]:
    """One character for the state of a host, and its token."""
    state, driver = snapshot.link.state, snapshot.driver
    if state is LinkState.LIVE and driver is not None and driver.state is not DriverState.OK:
        return glyphs.critical, "critical"
    return link_glyph(state, glyphs), LINK_TOKENS.get(state, "accent")


def link_glyph(state: LinkState, glyphs: Glyphs) -> str:
    """One character for a link state."""
    if state is LinkState.LIVE:
        return glyphs.ok
    if state in (LinkState.LOST, LinkState.REFUSED):
        return glyphs.lost
    if state is LinkState.STALE:
        return glyphs.stale
    return glyphs.waiting


def host_word(snapshot: HostSnapshot, now_s: float) -> tuple[str, str]:
    """What is to be said of a host in two or three words, and its token.

    A live host says so; an age is shown as soon as it is more than two intervals, so that a
    healthy room stands still between samples.
    """
    link = snapshot.link
    word, token = LINK_WORDS[link.state], LINK_TOKENS.get(link.state, "accent")
    if link.state is LinkState.LOST and link.retry_at_s is not None:
        wait_s = link.retry_at_s - now_s
        return (f"lost, retry in {fmt.duration(wait_s + 0.999)}", token) if wait_s > 0 else (
            "lost, retrying", token)  # fmt: skip
    driver = snapshot.driver
    if link.state is LinkState.LIVE and driver is not None and driver.state is not DriverState.OK:
        word, token = DRIVER_WORDS[driver.state], "critical"
    age_s = age_of(snapshot, now_s)
    if age_s is not None and age_s > 2 * snapshot.interval_s:
        word = f"{word} {fmt.duration(age_s)}"
        token = "warning" if token == "good" else token
    return word, token


def age_of(snapshot: HostSnapshot, now_s: float) -> float | None:
    """Age of the newest sample in seconds, or None before the first."""
    return None if snapshot.sampled_s is None else max(0.0, now_s - snapshot.sampled_s)


def ticking(snapshot: HostSnapshot, now_s: float) -> bool:
    """Whether what is shown of the host changes with time alone (an age, a countdown)."""
    if snapshot.link.state is LinkState.LOST or stale_for(snapshot, now_s) is not None:
        return True
    age_s = age_of(snapshot, now_s)
    return age_s is not None and age_s > 2 * snapshot.interval_s


def trouble(snapshot: HostSnapshot, now_s: float) -> list[Span]:
    """One line on what is wrong with link or driver; empty when nothing is."""
    link, driver = snapshot.link, snapshot.driver
    if link.state is not LinkState.LIVE:
        word, token = host_word(snapshot, now_s)
        spans: list[Span] = [(word, token)]
        if link.error:
            spans.append((f": {link.error}", "dim"))
        return spans
    if driver is not None and driver.state is not DriverState.OK:
        spans = [(DRIVER_WORDS[driver.state], "critical")]
        if driver.since_s:
            spans.append((f" for {fmt.duration(now_s - driver.since_s)}", "critical"))
        if driver.detail:
            spans.append((f": {driver.detail}", "dim"))
        return spans
    return []


def notice_rows(snapshot: HostSnapshot, now_s: float, width: int, glyphs: Glyphs) -> list[Row]:
    """What stands in place of GPUs while there are none: what is happening, what to do."""
    link, driver = snapshot.link, snapshot.driver
    rows: list[Row] = [text_row("", width)]

    def say(text: str, token: str, indent: int = 4) -> None:
        for piece in wrap(text, max(10, width - indent - 2)):
            rows.append(Line().add(" " * indent).add(piece, token).row(width))

    if link.state is not LinkState.LIVE:
        word, token = host_word(snapshot, now_s)
        head = Line().add("  ").add(link_glyph(link.state, glyphs) + " ", token)
        head.add(word, token).add(f"  {snapshot.host}", "strong")
        if link.attempt > 1:
            head.add(f"  try {link.attempt}", "dim")
        rows.append(head.row(width))
        if link.error:
            say(link.error, "text")
        if link.hint:
            say(link.hint, "dim")
        if link.state in (LinkState.LOST, LinkState.REFUSED):
            rows.append(Line().add("    ").add("c", "key").add(" connects now", "dim").row(width))
        return rows
    if driver is not None and driver.state is not DriverState.OK:
        rows.append(
            Line()
            .add(f"  {glyphs.critical} ", "critical")
            .add(DRIVER_WORDS[driver.state], "critical")
            .add(f"  {driver.version or ''}", "dim")
            .row(width)
        )
        if driver.detail:
            say(driver.detail, "text")
        if DRIVER_HINTS[driver.state]:
            say(DRIVER_HINTS[driver.state], "dim")
    elif driver is None:
        rows.append(Line().add(f"  {glyphs.waiting} first readings", "dim").row(width))
    else:
        rows.append(Line().add("  no GPU on this host", "dim").row(width))
    for note in snapshot.notes:
        say(note, "dim", 2)
    return rows


def wrap(text: str, width: int) -> list[str]:
    """Break text at spaces into pieces of at most `width` cells."""
    pieces: list[str] = []
    line = ""
    for word in text.split():
        while fmt.width_of(word) > width:
            cut = fmt.fit(word, width - 1)
            pieces.extend([line, cut] if line else [cut])
            line, word = "", word[len(cut) :] or ""
            if cut.endswith("…"):
                word = ""
        if line and fmt.width_of(line) + 1 + fmt.width_of(word) > width:
            pieces.append(line)
            line = word
        elif word:
            line = f"{line} {word}" if line else word
    if line:
        pieces.append(line)
    return pieces
