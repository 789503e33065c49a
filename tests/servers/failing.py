"""Logs of servers that fail, written around an error in the way each engine prints one."""

# ruff: noqa: E501 - lines of logs

from __future__ import annotations

from collections.abc import Callable

FRAMES = (
    '  File "/opt/env/lib/python3.12/site-packages/pkg/worker.py", line 210, in init_device',
    "    self.prepare(device)",
    "    ^^^^^^^^^^^^^^^^^^^^",
    '  File "/opt/env/lib/python3.12/site-packages/pkg/device.py", line 88, in prepare',
    "    raise error",
)


def vllm(error: str) -> str:
    """vLLM since 0.10: prefixes, the engine's traceback twice, an API server that knows nothing."""
    core = "(EngineCore_DP0 pid=77) "
    lines = [
        "(APIServer pid=7) INFO 10-02 09:15:01 [api_server.py:1839] vLLM API server version 0.11.0",
        "(APIServer pid=7) INFO 10-02 09:15:01 [utils.py:233] non-default args: {'model': '/m'}",
        core + "INFO 10-02 09:15:09 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with "
        "config: model='/m', trust_remote_code=True, quantization=fp8, disable_custom_all_reduce=False",
        core + "INFO 10-02 09:15:10 [gpu_model_runner.py:2602] Starting to load model /m...",
        core + "\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]",
        core
        + "\rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:03<00:00, 1.6s/it]",
        core + "INFO 10-02 09:15:14 [default_loader.py:267] Loading weights took 3.20 seconds",
        core + "ERROR 10-02 09:15:15 [core.py:708] EngineCore failed to start.",
        core + "ERROR 10-02 09:15:15 [core.py:708] Traceback (most recent call last):",
        *(core + "ERROR 10-02 09:15:15 [core.py:708] " + frame for frame in FRAMES),
        *(core + "ERROR 10-02 09:15:15 [core.py:708] " + line for line in error.split("\n")),
        core + "Process EngineCore_DP0:",
        core + "Traceback (most recent call last):",
        *(core + frame for frame in FRAMES),
        *(core + line for line in error.split("\n")),
        "[rank0]:[W1002 09:15:16.202323438 ProcessGroupNCCL.cpp:1479] Warning: WARNING: "
        "destroy_process_group() was not called before program exit, which can leak resources.",
        "(APIServer pid=7) Traceback (most recent call last):",
        '(APIServer pid=7)   File "/opt/env/bin/vllm", line 8, in <module>',
        "(APIServer pid=7)     sys.exit(main())",
        "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}",
    ]
    return "\n".join(lines) + "\n"


def vllm_workers(error: str) -> str:
    """vLLM with tensor parallelism: the worker fails, two processes above it echo."""
    worker = "(Worker_TP1 pid=92) ERROR 10-02 09:15:15 [multiproc_executor.py:597] "
    core = "(EngineCore_DP0 pid=77) ERROR 10-02 09:15:16 [core.py:708] "
    lines = [
        "(APIServer pid=7) INFO 10-02 09:15:01 [api_server.py:1839] vLLM API server version 0.11.0",
        "(EngineCore_DP0 pid=77) INFO 10-02 09:15:09 [core.py:77] Initializing a V1 LLM engine "
        "(v0.11.0) with config: model='/m'",
        worker + "WorkerProc failed to start.",
        worker + "Traceback (most recent call last):",
        *(worker + frame for frame in FRAMES),
        *(worker + line for line in error.split("\n")),
        "(Worker_TP0 pid=91) INFO 10-02 09:15:15 [multiproc_executor.py:558] Parent process exited, "
        "terminating worker",
        core + "EngineCore failed to start.",
        core + "Traceback (most recent call last):",
        *(core + frame for frame in FRAMES),
        core + "Exception: WorkerProc initialization failed due to an exception in a background "
        "process. See stack trace for root cause.",
        "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}",
    ]
    return "\n".join(lines) + "\n"


def vllm_early(error: str) -> str:
    """vLLM of early 2025: no prefixes, the parent kills its group."""
    head = "ERROR 03-04 10:00:05 core.py:291] "
    lines = [
        "INFO 03-04 10:00:00 __init__.py:207] Automatically detected platform cuda.",
        "INFO 03-04 10:00:01 api_server.py:911] vLLM API server version 0.7.3",
        "INFO 03-04 10:00:02 core.py:50] Initializing a V1 LLM engine (v0.7.3) with config: x=1",
        head + "EngineCore hit an exception: Traceback (most recent call last):",
        *(head + frame for frame in FRAMES),
        *(head + line for line in error.split("\n")),
        "CRITICAL 03-04 10:00:06 core_client.py:191] Got fatal signal from worker processes, "
        "shutting down. See stack trace above for root cause issue.",
        "Killed",
    ]
    return "\n".join(lines) + "\n"


def sglang(error: str) -> str:
    """SGLang with two ranks: both fail, the parent kills its tree."""

    def rank(number: int) -> list[str]:
        return [
            f"[2025-09-01 08:00:09 TP{number}] Scheduler hit an exception: "
            "Traceback (most recent call last):",
            *FRAMES,
            *error.split("\n"),
            "",
            "[2025-09-01 08:00:10] Received sigquit from a child process. It usually means the "
            "child failed.",
        ]

    lines = [
        "[2025-09-01 08:00:00] server_args=ServerArgs(model_path='/m', trust_remote_code=True, "
        "dtype='auto', quantization=None, tp_size=2, disable_cuda_graph=False, api_key=None)",
        "[2025-09-01 08:00:05 TP0] Init torch distributed begin.",
        "[2025-09-01 08:00:05 TP1] Init torch distributed begin.",
        "[2025-09-01 08:00:06 TP0] Init torch distributed ends. mem usage=0.34 GB",
        "[2025-09-01 08:00:06 TP0] Load weight begin. avail mem=78.50 GB",
        "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:02<00:00,  1.90it/s]",
        "",
        "[2025-09-01 08:00:08 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, "
        "avail mem=60.1 GB, mem usage=18.40 GB.",
        *rank(1),
        *rank(0),
        "Killed",
    ]
    return "\n".join(lines) + "\n"


def tgi(error: str) -> str:
    """TGI: the shard's own words come when it is dead."""
    lines = [
        "2024-06-06T06:06:06.000001Z  INFO text_generation_launcher: Args {",
        '    model_id: "org/m",',
        "}",
        "2024-06-06T06:06:07.000001Z  INFO download: text_generation_launcher: Starting check and "
        "download process for org/m",
        "2024-06-06T06:06:09.000001Z  INFO shard-manager: text_generation_launcher: Starting shard "
        "rank=0",
        "2024-06-06T06:06:19.000001Z  INFO shard-manager: text_generation_launcher: Waiting for "
        "shard to be ready... rank=0",
        "2024-06-06T06:06:25.000001Z ERROR shard-manager: text_generation_launcher: Shard complete "
        "standard error output:",
        "",
        "Traceback (most recent call last):",
        "",
        *FRAMES,
        "",
        *error.split("\n"),
        " rank=0",
        "2024-06-06T06:06:25.100001Z ERROR text_generation_launcher: Shard 0 failed to start",
        "2024-06-06T06:06:25.100002Z  INFO text_generation_launcher: Shutting down shards",
        "Error: ShardCannotStart",
    ]
    return "\n".join(lines) + "\n"


def trtllm(error: str) -> str:
    """TensorRT-LLM: the worker's traceback, then the parent's."""
    lines = [
        "[TensorRT-LLM] TensorRT LLM version: 1.1.0",
        "[01/05/2026-12:00:01] [TRT-LLM] [I] Using LLM with PyTorch backend",
        "[01/05/2026-12:00:09] [TRT-LLM] [I] Use 14.96 GB for model weights.",
        "[01/05/2026-12:00:10] [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: "
        + error.split("\n")[0],
        "[01/05/2026-12:00:10] [TRT-LLM] [RANK 0] [E] Traceback (most recent call last):",
        *FRAMES,
        *error.split("\n"),
        "",
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/trtllm-serve", line 8, in <module>',
        "RuntimeError: Executor worker returned error",
    ]
    return "\n".join(lines) + "\n"


def llamacpp(error: str) -> str:
    """llama.cpp: one process, no levels, wrappers after the cause."""
    lines = [
        "ggml_cuda_init: found 1 CUDA devices:",
        "  Device 0: NVIDIA L40S, compute capability 8.9, VMM: yes",
        "build: 6123 (79c1160b) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu",
        "system_info: n_threads = 8 (n_threads_batch = 8) / 16 | CUDA : ARCHS = 890 | CPU : AVX = 1 |",
        "main: binding port with default address family",
        "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 15",
        "main: loading model",
        "srv    load_model: loading model '/m.gguf'",
        *error.split("\n"),
        "llama_model_load_from_file_impl: failed to load model",
        "common_init_from_params: failed to load model '/m.gguf'",
        "srv    load_model: failed to load model, '/m.gguf'",
        "srv    operator(): operator(): cleaning up before exit...",
        "main: exiting due to model loading error",
    ]
    return "\n".join(lines) + "\n"


def plain(error: str) -> str:
    """Nothing around it: a shell, a container's last words."""
    return error + "\n"


PYTHON: dict[str, Callable[[str], str]] = {
    "vllm": vllm,
    "vllm-workers": vllm_workers,
    "vllm-early": vllm_early,
    "sglang": sglang,
    "tgi": tgi,
    "trtllm": trtllm,
}
