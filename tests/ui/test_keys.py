"""The table of actions, its documentation, and the user's own keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.errors import ConfigError
from screens.journal import JournalScreen
from tests.ui.fakes import drawn, make_app, make_hub, ready, screen_text
from tui.actions import ACTIONS, AREAS, FORBIDDEN_KEYS, Action, keys_text, markdown
from tui.cli import main
from tui.keymap import keys_of, make_keymap, takes_over

ROOT = Path(__file__).resolve().parents[2]


def test_docs_keys_md_is_current() -> None:
    assert (ROOT / "docs" / "keys.md").read_text() == markdown()


def test_every_action_is_documented_once() -> None:
    ids = [action.id for action in ACTIONS]
    assert len(ids) == len(set(ids))
    for action in ACTIONS:
        assert action.area in AREAS
        assert action.help.endswith(".")
        assert len(action.label) <= 14


def test_keys_are_written_as_they_are_pressed() -> None:
    for action in ACTIONS:
        assert "_" not in keys_text(action.keys), action.id


def test_tmux_and_screen_keep_their_keys() -> None:
    for action in ACTIONS:
        assert not FORBIDDEN_KEYS & set(keys_of(action, {}))


def test_no_two_actions_of_a_screen_share_a_key() -> None:
    for area in AREAS:
        seen: dict[str, Action] = {}
        for action in ACTIONS:
            if action.area in (area, "app", "host") and action.area not in ("dialog", "input"):
                for key in keys_of(action, {}):
                    if key in seen and takes_over(action, seen[key]):
                        continue
                    assert key not in seen, (key, action.id, seen[key].id)
                    seen[key] = action


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"app.jornal": "x"}, "did you mean `app.journal`?"),
        ({"app.journal": "ctrl+b"}, "choose another key"),
        ({"app.journal": "p"}, "give one of them another key"),
        ({"gpus.sort": "O"}, "give one of them another key"),
    ],
)
def test_wrong_keys_are_refused_with_what_to_do(keys: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_keymap(keys)
    assert says in caught.value.hint


def test_swapped_keys_are_no_clash() -> None:
    assert make_keymap({"app.pause": "f", "app.fleet": "p"}) == {"app.pause": "f", "app.fleet": "p"}


async def test_a_users_key_works_and_is_shown() -> None:
    app = make_app(make_hub(), keymap=make_keymap({"app.journal": "f9", "gpus.sort": "z"}))
    async with app.run_test(size=(160, 40)) as pilot:
        await ready(pilot)
        assert "z sort" in screen_text(app).splitlines()[-1]
        await pilot.press("z")
        await pilot.press("f9")
        await drawn(pilot)
        assert isinstance(app.screen, JournalScreen)
        await pilot.press("question_mark")
        await drawn(pilot)
        assert "f9" in screen_text(app)


def test_the_command_prints_the_users_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[keys]\n"app.pause" = "f8"\n')
    assert main(["keys", "--json", "--config", str(config)]) == 0
    table = {entry["id"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert table["app.pause"]["keys"] == ["f8"]
    assert table["app.pause"]["default_keys"] == ["p"]
    assert main(["keys", "--config", str(config)]) == 0
    assert "f8" in capsys.readouterr().out


def test_the_command_needs_no_screen_library() -> None:
    import subprocess
    import sys

    code = "import sys; from tui.cli import main; main(['keys']); print('textual' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "False"
