"""A line to type in, whose keys act in the order in which they were pressed."""

from __future__ import annotations

from textual.events import Key
from textual.widgets import Input


class EditLine(Input):
    """An input for slow links.

    Textual takes a letter at once and an editing key (backspace, Enter) only when its event has
    bubbled up: of keys that come in one packet, as over a link that stalls, the letters overtake
    those pressed before them, and what is entered is not what was typed.
    """

    async def _on_key(self, event: Key) -> None:
        own = self._bindings.key_to_bindings.get(event.key)
        # An action that has nothing to do here (scrolling) is for whoever is around.
        if own and not event.is_printable and await self.app.run_action(own[0].action, self):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)
