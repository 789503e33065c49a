"""The key that a server wants, from where its profile says; held in memory, never shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from backends.errors import UsageError
from backends.servers.profiles import Profile

OPTION: Final = "--api-key"
VARIABLES: Final = ("VLLM_API_KEY", "LLAMA_API_KEY")
"""Those in which engines look for their own key."""
SHORTEST_MASKED: Final = 4
"""A shorter key would mask ordinary text."""


class ApiKey:
    """A server's key. Neither its `repr` nor its `str` shows it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    @property
    def headers(self) -> dict[str, str]:
        """What shows it to the server (all engines take OpenAI's form)."""
        return {"authorization": f"Bearer {self._secret}"}

    def masked(self, text: str) -> str:
        """A text without it: some servers repeat a key that they refuse."""
        return text.replace(self._secret, "***") if len(self._secret) >= SHORTEST_MASKED else text


def key_of(profile: Profile | None, environment: Mapping[str, str]) -> ApiKey | None:
    """The key of a profile's server.

    The variable that `api_key_env` names, of the profile's own `env` or of gpuroom's environment;
    else what the command gives to the server itself; else the variable in `env` from which its
    engine takes one.
    """
    if profile is None:
        return None
    if profile.api_key_env is not None:
        name = profile.api_key_env
        return _key(profile.env.get(name) or environment.get(name))
    own = next((profile.env[name] for name in VARIABLES if profile.env.get(name)), None)
    return _key(_of_command(profile.command) or own)


def key_headers(profile: Profile | None, environment: Mapping[str, str]) -> dict[str, str]:
    """What shows a profile's server the key that it wants; nothing where it wants none.

    Raises:
        UsageError: The variable that `api_key_env` names holds none.
    """
    key = key_of(profile, environment)
    if key is not None:
        return key.headers
    if profile is not None and profile.api_key_env is not None:
        raise UsageError(
            f"the environment variable {profile.api_key_env} holds no key",
            f"`api_key_env` of {profile.name} names it",
            "set it where gpuroom is started",
        )
    return {}


def _of_command(command: Sequence[str]) -> str | None:
    for index, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name == OPTION:
            return value if equals else next(iter(command[index + 1 :]), None)
    return None


def _key(text: str | None) -> ApiKey | None:
    """Several keys may be given, with commas between them: one is enough.

    What no HTTP header can hold is no key.
    """
    first = (text or "").split(",")[0].strip()
    return ApiKey(first) if first and first.isascii() and first.isprintable() else None
