"""Serves a GGUF by llama.cpp until it is stopped: `python llama.py --model FILE --port N`.

The server is llama.cpp's own, in this process, by `xllamacpp`; its log goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import signal


def main() -> None:
    """Serve."""
    import xllamacpp

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--ctx-size", type=int, default=1024)
    parser.add_argument("--api-key")
    arguments = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.hostnames = ["127.0.0.1"]
    params.port = arguments.port
    params.n_parallel = arguments.parallel
    params.n_ctx = arguments.ctx_size
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    if arguments.api_key:
        params.api_keys = [arguments.api_key]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    server = xllamacpp.Server(params)
    signal.sigwait({signal.SIGTERM})
    del server
    os._exit(0)


if __name__ == "__main__":
    main()
