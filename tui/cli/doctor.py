"""`gpuroom doctor HOST`: why can't I connect, or see GPUs?"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path

from backends import config as configuration
from backends.config import Config, HostConfig
from backends.doctor import Finding, examine
from tui.cli.prompts import terminal_prompter

_MARKS = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Host and output."""
    parser.add_argument("host", metavar="HOST", help="as for the room")
    parser.add_argument("--config", type=Path, help="configuration file to use")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.epilog = (
        "Exit status: 0 all is well, 1 something is wrong with driver or GPUs, 2 wrong use, "
        "3 the host can't be reached, 4 the agent can't run there."
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine, print, say by the exit status what is wrong."""
    config = configuration.load(arguments.config)
    (host,) = configuration.resolve_hosts(config, [arguments.host])
    findings = asyncio.run(_examine(host, config, as_json=arguments.json))
    if arguments.json:
        print(
            json.dumps(
                {"host": host.name, "findings": [asdict(finding) for finding in findings]},
                indent=2,
                ensure_ascii=False,
            )
        )
    return max((finding.exit_code for finding in findings), default=0)


async def _examine(host: HostConfig, config: Config, *, as_json: bool) -> list[Finding]:
    findings = []
    async for finding in examine(host, config, terminal_prompter()):
        findings.append(finding)
        if not as_json:
            print(f"{_MARKS[finding.outcome]}  {finding.step:<13}  {finding.detail}", flush=True)
            if finding.advice:
                print(f"{'':<19}  -> {finding.advice}", flush=True)
    return findings
