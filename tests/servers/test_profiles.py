"""Profiles from `[[servers]]` tables: variants, and errors that say what to do."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from backends import config
from backends.errors import ConfigError
from backends.servers.apikey import ApiKey, key_of
from backends.servers.engines import ENGINES, EngineId
from backends.servers.profiles import (
    Profile,
    ReadinessTable,
    ServerTable,
    change_argument,
    resolve_profiles,
)
from tests.conftest import ROOT
from tui.cli.main import main


def profiles(text: str) -> dict[str, Profile]:
    found = resolve_profiles(tomllib.loads(text)["servers"], path=Path("config.toml"))
    return {profile.name: profile for profile in found}


BASE = """
[[servers]]
name = "glm"
host = "gpu01"
engine = "sglang"
command = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/glm", "--tp", "8",
           "--trust-remote-code", "--port", "31000"]
env = { CUDA_VISIBLE_DEVICES = "0,1,2,3,4,5,6,7", NCCL_P2P_DISABLE = "1" }
cwd = "/srv"
stop_grace_s = 90
ready = { prompt = "Say yes." }
"""


def test_a_profile_says_everything_that_a_launcher_needs() -> None:
    profile = profiles(BASE)["glm"]
    assert profile.engine is ENGINES[EngineId.SGLANG]
    assert profile.command[-2:] == ("--port", "31000")
    assert profile.port == 31000
    assert profile.launcher == "process"
    assert profile.stop_grace_s == 90
    assert profile.ready.prompt == "Say yes."
    assert profile.lineage == ()


def test_a_variant_changes_arguments_and_takes_the_rest() -> None:
    variant = """
[[servers]]
name = "glm-tp4"
extends = "glm"
env = { NCCL_P2P_DISABLE = "0" }
[servers.arguments]
"--tensor-parallel-size" = 4
"--trust-remote-code" = false
"--cuda-graph-bs" = ["1", "2"]
"--disable-cuda-graph" = true
"""
    found = profiles(BASE + variant)["glm-tp4"]
    assert found.host == "gpu01"
    assert found.cwd == "/srv"
    assert found.lineage == ("glm",)
    assert found.env["NCCL_P2P_DISABLE"] == "0"
    assert found.env["CUDA_VISIBLE_DEVICES"].startswith("0,1")
    words = list(found.command)
    assert "--tp" not in words
    assert words[words.index("--tensor-parallel-size") + 1] == "4"
    assert "--trust-remote-code" not in words
    assert "--disable-cuda-graph" in words
    assert words[words.index("--cuda-graph-bs") + 1 :][:2] == ["1", "2"]
    assert words[words.index("--model-path") + 1] == "/models/glm"
    assert profiles(BASE + variant)["glm"].command == profiles(BASE)["glm"].command


def test_a_variant_of_a_variant() -> None:
    found = profiles(
        BASE
        + """
[[servers]]
name = "b"
extends = "glm"
arguments = { "--tp" = 4 }
[[servers]]
name = "c"
extends = "b"
arguments = { "--tp" = 2, "--ep" = 2 }
"""
    )["c"]
    words = list(found.command)
    assert words.count("--tp") == 1
    assert words[words.index("--tp") + 1] == "2"
    assert found.lineage == ("b", "glm")


def test_a_part_without_a_host_is_only_for_those_that_extend_it() -> None:
    found = profiles(
        """
[[servers]]
name = "common"
engine = "vllm"
command = ["vllm", "serve", "M"]
[[servers]]
name = "one"
host = "gpu01"
extends = "common"
"""
    )
    assert set(found) == {"one"}
    assert found["one"].command == ("vllm", "serve", "M")
    assert found["one"].port == 8000


def test_a_unit_that_exists_needs_no_command() -> None:
    found = profiles(
        """
[[servers]]
name = "u"
host = "gpu01"
launcher = "systemd"
unit = "vllm.service"
"""
    )["u"]
    assert found.unit == "vllm.service"
    assert found.command == ()


CIRCLE = """name = "x"
host = "h"
extends = "b"
[[servers]]
name = "b"
extends = "{}"
"""


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ('name = "x"\nhost = "h"', "has no command", "command = ["),
        ('name = "x"\ncommand = ["a"]', "has no host", "host ="),
        ('name = "x"\nhost = "h"\ncommand = "vllm serve M"', "array", "the command is a list"),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nengine = "vlm"', "vlm", "sglang, vllm"),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nprot = 1', "prot", "known keys"),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nport = 70000', "65535", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nextends = "y"', "extends 'y'", "servers of"),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nextends = "x"', "x -> x", ""),
        (CIRCLE.format("x"), "x -> b -> x", ""),
        (CIRCLE.format('c"\n[[servers]]\nname = "c"\nextends = "x'), "x -> b -> c -> x", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\ncwd = "srv"', "no whole path", "/ or ~/"),
        ('name = "a b"\nhost = "h"\ncommand = ["a"]', "cannot be used", "letters"),
        ('host = "h"\ncommand = ["a"]', "server number 1", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nenv = { A = 1 }', "`str`", "values are strings"),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nenv = { "A-B" = "1" }', "A-B", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\narguments = { tp = 4 }', "'tp'", "--tp"),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nlauncher = "slurm"', "slurm", "one of process"),
        ('name = "x"\nhost = "h"\nlauncher = "docker"', "neither a command nor a unit", "unit ="),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nready = { log = "(" }', "ready.log", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nready = { path = "h" }', "ready.path", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a\\u0000b"]', "NUL", ""),
        ('name = "x"\nhost = "h"\ncommand = ["a"]\nstart_timeout_s = 0', "start_timeout_s", ""),
    ],
)
def test_an_error_names_the_server_and_the_way_out(text: str, words: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profiles("[[servers]]\n" + text)
    assert words in str(caught.value)
    assert hint in caught.value.hint
    assert "config.toml" in caught.value.detail


def test_the_configuration_file_carries_them() -> None:
    found = config.parse('[[hosts]]\nname = "gpu01"\n' + BASE)
    assert [profile.name for profile in resolve_profiles(found.servers)] == ["glm"]


def test_the_sample_of_the_configuration_holds_a_server_and_a_variant() -> None:
    sample = (ROOT / "config.toml").read_text(encoding="utf-8")
    start = sample.index("# ---- servers:")
    text = sample[start : sample.index("# ---- how often")]
    lines = [line.removeprefix("# ") for line in text.split("\n")[1:]]
    assert set(profiles("\n".join(lines))) == {"glm", "glm-ep"}


def test_checking_the_configuration_checks_the_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(BASE)
    assert main(["config", "check", "--config", str(path)]) == 0
    assert "servers: glm" in capsys.readouterr().out
    path.write_text(BASE.replace('host = "gpu01"', ""))
    assert main(["config", "check", "--config", str(path)]) == 2
    assert "server 'glm' has no host" in capsys.readouterr().err


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        profiles(BASE + BASE)


@pytest.mark.parametrize(
    ("command", "option", "value", "wanted"),
    [
        (["s", "--tp", "8"], "--tp", 4, ["s", "--tp", "4"]),
        (["s", "--tp=8", "m"], "--tp", 4, ["s", "--tp", "4", "m"]),
        (["s", "m"], "--tp", 4, ["s", "m", "--tp", "4"]),
        (["s", "--flag", "--x", "1"], "--flag", False, ["s", "--x", "1"]),
        (["s", "--x", "-1", "m"], "--x", "2", ["s", "--x", "2", "m"]),
        (["s", "--trust-remote-code", "m"], "--trust-remote-code", False, ["s", "m"]),
        (["--tp", "--tp", "2"], "--tp", 1, ["--tp", "--tp", "1"]),
    ],
)
def test_changing_one_argument(
    command: list[str], option: str, value: int | str | bool, wanted: list[str]
) -> None:
    assert change_argument(command, option, value, ENGINES[EngineId.SGLANG]) == wanted


def test_every_key_of_a_profile_is_in_the_sample() -> None:
    text = (ROOT / "config.toml").read_text(encoding="utf-8")
    part = text.partition("# ---- servers")[2].partition("\n# ----")[0]
    for key in ServerTable.__struct_fields__:
        assert f"# {key} = " in part, key
    for key in ReadinessTable.__struct_fields__:
        assert f"{key} = " in part, key


def test_a_servers_key_comes_from_where_its_profile_says_and_is_never_shown() -> None:
    def key(environment: dict[str, str], **more: object) -> dict[str, str] | None:
        table = {"name": "a", "host": "h", "engine": "vllm", "command": ["vllm", "serve"], **more}
        found = key_of(resolve_profiles([table])[0], environment)
        assert "s3cr" not in repr(found)
        return found.headers if found is not None else None

    bearer = {"authorization": "Bearer s3cret"}
    assert key({"K": "s3cret"}, api_key_env="K") == bearer
    assert key({"K": "other"}, api_key_env="K", env={"K": "s3cret"}) == bearer
    assert key({"K": "s3cret"}) is None, "only a variable that is named is read"
    assert key({"VLLM_API_KEY": "s3cret"}) is None
    assert key({}, env={"VLLM_API_KEY": "s3cret,another"}) == bearer
    assert key({}, command=["vllm", "serve", "--api-key=s3cret"]) == bearer
    assert key({}, command=["vllm", "serve", "--api-key", "s3cret"], api_key_env="K") is None
    assert key({"K": "line\nbreak"}, api_key_env="K") is None, "no header can hold it"
    with pytest.raises(ConfigError, match="no environment variable"):
        resolve_profiles([{"name": "a", "host": "h", "command": ["x"], "api_key_env": "a b"}])
    assert ApiKey("s3cret").masked("Invalid key: s3cret") == "Invalid key: ***"
