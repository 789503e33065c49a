"""The generator's job, and the generator as one piece that any `python3` can run."""

from __future__ import annotations

import functools
import json
import secrets
import zlib
from importlib import resources
from typing import Final

import msgspec

from backends.bench.endpoint import Endpoint
from backends.bench.identify import Server
from backends.bench.plan import Plan
from backends.bench.prompts import Requests
from backends.bench.steps import StepSpec, length_for_generator

STUB: Final = (
    "import os,sys,zlib\n"
    "n=int(sys.argv[1]);b=b''\n"
    "while len(b)<n:\n"
    " c=os.read(0,n-len(b))\n"
    " if not c: sys.exit(2)\n"
    " b+=c\n"
    "exec(zlib.decompress(b))\n"
)
"""`python3 -c STUB SIZE` reads SIZE bytes of payload from standard input and runs them."""

_LOADER: Final = """
import sys
from importlib.machinery import ModuleSpec
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return ModuleSpec(name, self, origin="<%s>" % name, is_package=name == "generator")
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(SOURCES[name], "<%s>" % name, "exec"), module.__dict__)
sys.meta_path.insert(0, Finder())
from generator.__main__ import main
sys.exit(main())
"""


@functools.cache
def payload() -> bytes:
    """The generator, compressed: what STUB reads."""
    sources = {}
    for file in resources.files("backends.bench.generator").iterdir():
        if file.name.endswith(".py"):
            stem = file.name.removesuffix(".py")
            name = "generator" if stem == "__init__" else f"generator.{stem}"
            sources[name] = file.read_text("utf-8")
    ordered = dict(sorted(sources.items()))
    return zlib.compress(f"SOURCES = {ordered!r}\n{_LOADER}".encode(), 9)


def argv(python: str, program: bytes) -> list[str]:
    """The command that runs a program such as `payload()`, which follows on standard input.

    Isolated and without `site`: nothing that is installed there is looked at, or can interfere.
    """
    return [python, "-I", "-S", "-c", STUB, str(len(program))]


def build(
    plan: Plan,
    steps: list[StepSpec],
    endpoint: Endpoint,
    server: Server,
    requests: Requests,
    *,
    nonce: str | None = None,
) -> dict[str, object]:
    """The job as the generator reads it: one JSON object. Holds the headers, so is never stored.

    `nonce` makes the prompts of this run differ from those of any other of the same plan, so
    that a prefix cache left by the last run helps none of them.
    """
    extra: dict[str, object] = {"temperature": 0.0} if requests.route == "chat" else {}
    if requests.route == "llamacpp":
        # Its cache would otherwise keep the beginning of each slot's last prompt.
        extra["cache_prompt"] = any(part.prefix for part in plan.parts)
    extra.update(plan.body)
    warm_up = msgspec.to_builtins(plan.warm_up) if plan.warm_up is not None else None
    return {
        "version": 1,
        "gate": True,
        "target": {
            "host": endpoint.host,
            "port": endpoint.port,
            "authority": endpoint.authority,
            "tls": endpoint.tls,
            "verify": endpoint.verify,
            "base_path": endpoint.base_path,
            "headers": endpoint.headers,
        },
        "route": requests.route,
        "model": server.model,
        "stream": plan.streaming,
        "seed": plan.seed,
        "nonce": nonce if nonce is not None else secrets.token_hex(8),
        "ignore_eos": requests.ignore_eos,
        "usage": True,
        "continuous_usage": requests.continuous_usage,
        "extra": extra,
        "prompt": requests.prompt,
        "parts": [
            {
                "name": part.name,
                "weight": part.weight,
                "input": length_for_generator(part.input),
                "output": length_for_generator(part.output),
                "prefix": msgspec.to_builtins(part.prefix),
            }
            for part in plan.parts
        ],
        "limits": msgspec.to_builtins(plan.limits),
        "workers": plan.workers,
        "steps": [
            {
                "index": step.index,
                "repetition": step.repetition,
                "label": step.label,
                "load": step.load,
                "total_requests": step.total_requests,
                "duration_s": step.duration_s,
                "warm_up": warm_up,
                "cool_down": plan.cool_down,
                "drain_s": plan.drain_s,
                "sample": plan.sample,
            }
            for step in steps
        ],
    }


def encode(job: dict[str, object]) -> bytes:
    """The job's line."""
    return json.dumps(job, separators=(",", ":")).encode() + b"\n"
