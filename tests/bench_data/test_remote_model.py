"""A model on a host, weighed through a real agent: the same figures as from the folder itself."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from backends.agent.client import AgentClient
from backends.bench import remote_model
from backends.bench.json_fields import ModelError
from backends.bench.models import load_model
from backends.bench.remote_model import weigh_remote
from backends.errors import AgentError
from backends.link.local import LocalTransport
from tests.bench_data.checkpoints import write_checkpoint, write_gguf


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[AgentClient]:
    client = AgentClient(
        LocalTransport(), on_notification=lambda method, params: None, python=sys.executable
    )
    await client.start(30.0)
    yield client
    await client.close()


async def test_a_folder(agent: AgentClient, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, fp4=True)
    assert await weigh_remote(agent, str(tmp_path)) == load_model(str(tmp_path))


async def test_shards_with_an_index_and_one_missing(agent: AgentClient, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, fp4=False)
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    assert await weigh_remote(agent, str(tmp_path)) == load_model(str(tmp_path))
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    _, weights = await weigh_remote(agent, str(tmp_path))
    assert any("missing" in note for note in weights.notes)
    index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}))
    with pytest.raises(ModelError):
        await weigh_remote(agent, str(tmp_path))


async def test_a_damaged_shard_is_named(agent: AgentClient, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, fp4=False)
    names = [f"{n}.safetensors" for n in range(5)]
    for name in names:
        (tmp_path / name).write_bytes(b"\xff" * 20)
    index = {"weight_map": {str(n): name for n, name in enumerate(names)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError) as caught:
        await weigh_remote(agent, str(tmp_path))
    assert ".safetensors" in caught.value.detail


async def test_a_download_by_its_name(agent: AgentClient, tmp_path: Path) -> None:
    base = tmp_path / "models--org--tiny"
    snapshot = base / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("0123abcd")
    write_checkpoint(snapshot, fp4=False)
    name, weights = await weigh_remote(agent, "org/tiny", str(tmp_path))
    assert name == "tiny"
    assert weights == load_model(str(snapshot))[1]
    (base / "refs" / "main").write_text("../../..")
    with pytest.raises(ModelError):
        await weigh_remote(agent, "org/tiny", str(tmp_path))


async def test_gguf(agent: AgentClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    # Its header is longer than the first piece, which is then doubled.
    monkeypatch.setattr(remote_model, "FIRST_GGUF_BYTES", 1024)
    assert await weigh_remote(agent, str(path)) == load_model(str(path))
    for part in (1, 2):
        write_gguf(tmp_path / f"big-{part:05}-of-00002.gguf")
    first = str(tmp_path / "big-00001-of-00002.gguf")
    _, both = await weigh_remote(agent, first)
    assert both == load_model(first)[1]
    assert both.stored_bytes == 2 * load_model(str(path))[1].stored_bytes
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ModelError):
        await weigh_remote(agent, str(path))


@pytest.mark.parametrize("model", ["/no/such/folder", "no/model", "/no/file.gguf", "", "plain"])
async def test_what_is_not_there(agent: AgentClient, model: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        await weigh_remote(agent, model, str(tmp_path))


class Liar:
    """An agent that answers nonsense."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        return {"size": 100} if method == "files.stat" else self.answer


@pytest.mark.parametrize("answer", [None, {}, {"z": 3}, {"z": "%%%"}, {"z": "AAAA"}])
async def test_nonsense_is_refused(answer: object) -> None:
    with pytest.raises((AgentError, ModelError)):
        await weigh_remote(Liar(answer), "/model")
