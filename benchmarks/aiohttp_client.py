"""The plain alternative to a load generator of one's own: aiohttp, one task a stream.

python aiohttp_client.py PORT STREAMS REQUESTS TOKENS    prints its figures as JSON
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import sys
import time

import aiohttp


async def main(port: int, streams: int, requests: int, tokens: int) -> None:
    body = {
        "model": "reference",
        "messages": [{"role": "user", "content": "t1 " * 32}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    left = itertools.islice(itertools.count(), requests)
    ttft, gaps = [], []

    async def stream(session: aiohttp.ClientSession) -> None:
        for _ in left:
            begun = last = time.perf_counter()
            first = True
            async with session.post("/v1/chat/completions", json=body) as response:
                async for line in response.content:
                    if not line.startswith(b"data: {"):
                        continue
                    choices = json.loads(line[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        now = time.perf_counter()
                        (ttft if first else gaps).append(now - (begun if first else last))
                        first, last = False, now

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}", connector=connector, timeout=timeout
    ) as session:
        used = resource.getrusage(resource.RUSAGE_SELF)
        before = used.ru_utime + used.ru_stime
        await asyncio.gather(*(stream(session) for _ in range(streams)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    gaps.sort()
    print(
        json.dumps(
            {
                "ttft_mean_ms": sum(ttft) / len(ttft) * 1e3,
                "gap_p50_ms": gaps[len(gaps) // 2] * 1e3,
                "gap_p99_ms": gaps[int(len(gaps) * 0.99)] * 1e3,
                "cpu_s": used.ru_utime + used.ru_stime - before,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
