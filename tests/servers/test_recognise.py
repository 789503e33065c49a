"""Which engine a command starts, whatever wraps it, is called like it, or only speaks of it."""

from __future__ import annotations

import pytest

from backends.servers.asked import named_model, named_port, read_argv
from backends.servers.engines import ENGINES, EngineId
from backends.servers.recognise import recognise, server_words

ENTRY = "/opt/nvidia/nvidia_entrypoint.sh"
LONG = """set -euo pipefail
export HF_HOME=/models VLLM_LOGGING_LEVEL=INFO
cd /srv && source venv/bin/activate; ulimit -n 65536
CUDA_VISIBLE_DEVICES=0,1 exec python3 -m sglang.launch_server \\
  --model-path "/m/GLM 5" --port 30001 --json-model-override-args '{"a": 1}' > /tmp/s.log 2>&1"""


@pytest.mark.parametrize(
    ("argv", "engine", "port", "model"),
    [
        (["bash", "-c", "exec vllm serve org/m --port 9001"], "vllm", 9001, "org/m"),
        (["/bin/sh", "-lc", "vllm serve org/m"], "vllm", 8000, "org/m"),
        (["bash", "-eo", "pipefail", "-c", "vllm serve m"], "vllm", 8000, "m"),
        ([ENTRY, "bash", "-c", "pip -q x && sglang serve --model-path m"], "sglang", 30000, "m"),
        (["tini", "--", "bash", "-c", LONG], "sglang", 30001, "/m/GLM 5"),
        (["bash", "-c", "tail -f /var/log/vllm serve & exec llama-server -m /m.gguf --port 81"],
         "llamacpp", 81, "/m.gguf"),
        (["/opt/vllm-env/bin/python", "-m", "sglang.launch_server", "--model-path", "m"],
         "sglang", 30000, "m"),
        (["/srv/vllm/entrypoints/start.sh", "python3", "-m", "sglang.launch_server"],
         "sglang", 30000, None),
        (["numactl", "-N", "0", "python", "/x/vllm/entrypoints/openai/api_server.py"],
         "vllm", 8000, None),
        (["mpirun", "-n", "2", "trtllm-llmapi-launch", "trtllm-serve", "m"], "trtllm", 8000, "m"),
        (["sh", "-c", "trtllm-serve m --port 8001 'no end"], "trtllm", 8001, "m"),
        (["bash", "/opt/vllm/start.sh"], None, None, None),
        (["ssh", "-L", "8000:localhost:8000", "gpu01", "vllm", "serve", "m"], None, None, None),
        (["ssh", "gpu01", "bash", "-c", "vllm serve m"], None, None, None),
        (["docker", "run", "--gpus=all", "vllm/vllm-openai", "vllm", "serve"], None, None, None),
        (["tail", "-f", "/var/log/llama-server"], None, None, None),
        (["vllm-router", "--backend", "sglang"], None, None, None),
        (["bash"], None, None, None),
        (["bash", "-c"], None, None, None),
        ([], None, None, None),
    ],
)  # fmt: skip
def test_a_command_is_known_by_what_it_starts(
    argv: list[str], engine: str | None, port: int | None, model: str | None
) -> None:
    found = recognise(argv)
    assert (found and found.id.value) == engine
    if found is not None:
        assert (named_port(found, argv), named_model(found, argv)) == (port, model)


def test_what_was_asked_is_read_from_what_a_shell_is_given() -> None:
    argv = ["bash", "-c", LONG]
    assert server_words(argv)[:3] == ("python3", "-m", "sglang.launch_server")
    asked = read_argv(ENGINES[EngineId.SGLANG], argv)
    assert asked.options == {
        "model_path": "/m/GLM 5", "port": "30001", "json_model_override_args": '{"a": 1}',
    }  # fmt: skip
