"""More failures in the engines' own words: cause, and the lines as they are printed."""

# ruff: noqa: E501 - lines of logs

from __future__ import annotations

from typing import Final

RAISED: Final[list[tuple[str, str]]] = [
    ("chat-template-invalid", "ValueError: The supplied chat template (/t/a.jinja) looks like a file path, but it failed to be opened. Reason: [Errno 2] No such file or directory: '/t/a.jinja'"),
    ("chat-template-invalid", "jinja2.exceptions.TemplateSyntaxError: unexpected 'end of statement block'"),
    ("lora-invalid", "ValueError: LoRA rank 128 is greater than max_lora_rank 16."),
    ("lora-invalid", "FileNotFoundError: [Errno 2] No such file or directory: '/adapters/a/adapter_config.json'"),
    ("driver-too-old", "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch."),
    ("no-gpu", "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA) is available."),
    ("jit-build-failed", "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)"),
    ("jit-build-failed", "RuntimeError: NVCC compilation failed: moe_align"),
    ("host-oom", "ValueError: Too large swap space. 64.00 GiB out of the 60.00 GiB total CPU memory is allocated for the swap space."),
    ("port-in-use", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"),
    ("download-failed", "RuntimeError: Data processing error: CAS service error : Reqwest Error: HTTP status server error (502 Bad Gateway)"),
    ("download-failed", "RuntimeError: An error occurred while downloading using `hf_transfer`. Consider disabling HF_HUB_ENABLE_HF_TRANSFER for better error handling."),
    ("download-failed", "requests.exceptions.ConnectionError: (ProtocolError('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer')), '(Request ID: 1)')"),
    ("disk-full", "RuntimeError: Data processing error: CAS service error : IO Error: No space left on device (os error 28)"),
    ("import-error", "ValueError: Fast download using 'hf_transfer' is enabled (HF_HUB_ENABLE_HF_TRANSFER=1) but 'hf_transfer' package is not available in your environment. Try `pip install hf_transfer`."),
    ("model-files-missing", "huggingface_hub.errors.RevisionNotFoundError: 404 Client Error. (Request ID: 1)"),
    ("model-files-missing", "OSError: Can't load the configuration of '/models/m'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name."),
    ("model-files-missing", "ValueError: No model weights found in: `/models/m`"),
    ("model-file-broken", "OSError: It looks like the config file at '/models/m/config.json' is not a valid JSON file."),
    ("model-unsupported", "KeyError: 'qwen9_moe'"),
]  # fmt: skip
"""Exceptions that any Python engine may raise."""

LOADING: Final[list[tuple[str, str]]] = [
    ("model-file-broken", "gguf_init_from_file_impl: bad GGUF version: 50331648"),
    ("model-unsupported", "gguf_init_from_file_impl: this GGUF file is version 4 but this software only supports up to version 3"),
    ("model-unsupported", "llama_model_load: error loading model: error loading model hyperparameters: key not found in model: qwen9.attention.head_count"),
    ("model-files-missing", "llama_model_load: error loading model: failed to open /m-00002-of-00003.gguf: No such file or directory"),
    ("permission-denied", "gguf_init_from_file: failed to open GGUF file '/m.gguf' (Permission denied)"),
    ("chat-template-invalid", "srv          init: chat template parsing error: Expected value expression at row 2, column 3:"),
    ("lora-invalid", "llama_adapter_lora_init: failed to load lora adapter file from /l.gguf"),
    ("gated-model", "error: failed to get manifest: HTTP error 401"),
]  # fmt: skip
"""What llama.cpp prints before it gives up loading."""

ALONE: Final[list[tuple[str, str, str]]] = [
    ("bad-argument", "llamacpp", "error: invalid argument: --no-such"),
    ("bad-argument", "llamacpp", 'error while handling argument "-ngl": stoi\n\nusage:\n-ngl,  --gpu-layers N'),
    ("bad-argument", "vllm", "usage: api_server.py [-h] [--host HOST]\napi_server.py: error: argument --dtype: invalid choice: 'fp16' (choose from 'auto', 'half')"),
    ("bad-argument", "sglang", "usage: launch_server.py [-h] --model-path MODEL_PATH\nlaunch_server.py: error: unrecognized arguments: --no-such"),
    ("bad-argument", "trtllm", "Usage: trtllm-serve serve [OPTIONS] MODEL\nTry 'trtllm-serve serve --help' for help.\n\nError: Missing argument 'MODEL'."),
    ("command-missing", "vllm", "bash: line 1: vllm: command not found"),
    ("command-missing", "vllm", "/usr/bin/python3: Error while finding module specification for 'vllm.entrypoints.openai.api_server' (ModuleNotFoundError: No module named 'vllm')"),
    ("command-missing", "sglang", "/usr/bin/python3: No module named sglang.launch_server; 'sglang' is not a package"),
    ("port-in-use", "custom", "docker: Error response from daemon: driver failed programming external connectivity: Bind for 0.0.0.0:8000 failed: port is already allocated."),
]  # fmt: skip
"""All that a start printed, and the engine that it gives away."""
