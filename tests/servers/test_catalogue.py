"""Every cause of the catalogue, found in the words and the surroundings that engines print."""

# ruff: noqa: E501 - lines of logs

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backends.errors import ConfigError
from backends.servers.catalogue import (
    Catalogue,
    build_catalogue,
    fill,
    fill_title,
    load_catalogue,
    parse_catalogue,
    version_within,
)
from backends.servers.diagnose import diagnose_bytes
from tests.servers import failing, failures

CATALOGUE = load_catalogue()

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total "
    "capacity of 79.11 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process "
    "has 77.90 GiB memory in use."
)
SHARED_GPU = OOM.replace(
    "Including",
    "Process 11 has 37.1 GiB memory in use. Process 12 has 38.0 GiB memory in use. Incl",
)

# Exceptions that any Python engine may raise: cause, and the line as Python prints it.
RAISED: list[tuple[str, str]] = [
    ("cuda-oom-gpu-shared", SHARED_GPU),
    ("hip-oom", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 256.00 MiB. GPU 0"),
    ("gpu-memory-not-free", "ValueError: Free memory on device (3.22/79.1 GiB) on startup is less "
     "than desired GPU memory utilization (0.9, 71.2 GiB). Decrease GPU memory utilization"),
    ("host-oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. "
     "DefaultCPUAllocator: can't allocate memory: you tried to allocate 234881024 bytes."),
    ("host-oom", "OSError: [Errno 12] Cannot allocate memory"),
    ("shm-too-small", "torch.distributed.DistBackendError: NCCL error: Error while creating shared "
     "memory segment /dev/shm/nccl-3xbF1P (size 9637888)"),
    ("shm-too-small", "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1a2b3c4d'"),
    ("cuda-unknown-error", "RuntimeError: CUDA unknown error - this may be due to an incorrectly "
     "set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start."),
    ("cuda-802-fabric-manager", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you "
     "run some cuda functions before calling NumCudaDevices() that might have already set an "
     "error? Error 802: system not yet initialized"),
    ("cuda-compat-mismatch", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: "
     "forward compatibility was attempted on non supported HW"),
    ("cuda-compat-mismatch", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: "
     "system has unsupported display driver / cuda driver combination"),
    ("driver-too-old", "RuntimeError: The NVIDIA driver on your system is too old (found version "
     "11040). Please update your GPU driver"),
    ("driver-too-old", "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported "
     "toolchain."),
    ("gpu-access-denied", "pynvml.NVMLError_Unknown: Failed to initialize NVML: Unknown Error"),
    ("no-gpu", "RuntimeError: No CUDA GPUs are available"),
    ("no-gpu", "RuntimeError: Failed to infer device type, please set the environment variable"),
    ("no-gpu", "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an "
     "NVIDIA GPU and installed a driver"),
    ("invalid-device-ordinal", "torch.AcceleratorError: CUDA error: invalid device ordinal"),
    ("gpu-memory-error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("cuda-illegal-memory-access", "torch.AcceleratorError: CUDA error: an illegal memory access "
     "was encountered"),
    ("gpu-fault", "RuntimeError: CUDA error: unspecified launch failure"),
    ("gpu-fault", "RuntimeError: CUDA error: device-side assert triggered"),
    ("cuda-fork-reinit", "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA "
     "with multiprocessing, you must use the 'spawn' start method"),
    ("missing-main-guard", "RuntimeError: An attempt has been made to start a new process before "
     "the current process has finished its bootstrapping phase."),
    ("unsupported-dtype-on-arch", "ValueError: Bfloat16 is only supported on GPUs with compute "
     "capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5."),
    ("quantization-needs-newer-gpu", "ValueError: The quantization method fp8 is not supported for "
     "the current GPU. Minimum capability: 80. Current capability: 75."),
    ("kernel-image-invalid", "RuntimeError: Triton Error [CUDA]: device kernel image is invalid"),
    ("unsupported-arch", "RuntimeError: CUDA error: no kernel image is available for execution on "
     "the device"),
    ("kernel-needs-more-shared-memory", "triton.runtime.errors.OutOfResources: out of resource: "
     "shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or "
     "`num_stages` may help."),
    ("jit-build-failed", "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' "
     "doesn't exist"),
    ("jit-build-failed", "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
    ("jit-build-failed", "RuntimeError: Ninja build failed. Ninja output:"),
    ("jit-build-failed", "RuntimeError: Failed to find C compiler. Please specify via CC "
     "environment variable."),
    ("jit-build-failed", "OSError: CUDA_HOME environment variable is not set. Please set it to your "
     "CUDA install root."),
    ("jit-build-failed", "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', "
     "'-O3', '-shared']' returned non-zero exit status 1."),
    ("jit-compile-error", "torch._inductor.exc.InductorError: LoweringException: NotImplementedError"),
    ("missing-kernel-op", "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'"),
    ("missing-kernel-op", "NotImplementedError: Could not run '_C::awq_gemm' with arguments from "
     "the 'CUDA' backend."),
    ("abi-mismatch", "ImportError: /opt/env/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined "
     "symbol: _ZN3c104cuda9SetDeviceEi"),
    ("abi-mismatch", "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found"),
    ("missing-shared-library", "ImportError: libcudart.so.12: cannot open shared object file: No "
     "such file or directory"),
    ("import-error", "ModuleNotFoundError: No module named 'flash_attn'"),
    ("import-error", "ImportError: cannot import name 'PreTrainedConfig' from 'transformers'"),
    ("api-mismatch", "TypeError: apply_rope() got an unexpected keyword argument 'interleave'"),
    ("attribute-error", "AttributeError: 'LlamaConfig' object has no attribute 'rope_theta'"),
    ("cuda-graph-capture-failed", "Exception: Capture cuda graph failed: head dim 96 not handled"),
    ("cublas-error", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
     "`cublasCreate(handle)`"),
    ("nccl-unhandled-system-error", "RuntimeError: NCCL error: unhandled system error (run with "
     "NCCL_DEBUG=INFO for details)"),
    ("nccl-unhandled-cuda-error", "RuntimeError: NCCL error: unhandled cuda error (run with "
     "NCCL_DEBUG=INFO for details)"),
    ("nccl-invalid-usage", "torch.distributed.DistBackendError: NCCL error: Duplicate GPU detected "
     ": rank 1 and rank 0 both on CUDA device 18000"),
    ("nccl-internal-error", "RuntimeError: NCCL error: internal error - please report this issue"),
    ("rendezvous-failed", "torch.distributed.DistNetworkError: The client socket has timed out "
     "after 600000ms while trying to connect to (10.0.0.4, 29500)."),
    ("rendezvous-failed", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting "
     "for clients. 1/2 clients joined."),
    ("custom-allreduce-failed", "RuntimeError: Failed: Cuda error csrc/custom_all_reduce.cuh:455 'invalid argument'"),
    ("npu-fault", "RuntimeError: NPU function error: call aclnnMatmul failed, error code is 161002"),
    ("no-gpu", "RuntimeError: 0 active drivers ([]). There should only be one."),
    ("feature-unsupported", "NotImplementedError: FlashAttention does not support fp8 kv-cache on this device."),
    ("feature-unsupported", "ValueError: CUDAGraphMode.FULL is not supported with FlexAttention backend"),
    ("tp-shape-quant", "ValueError: Weight output_size_per_partition = 1504 is not divisible by  min_thread_n = 64."),
    ("ray-failed", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing"),
    ("gated-model", "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)"),
    ("gated-model", "OSError: You are trying to access a gated repo."),
    ("model-not-cached", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an "
     "appropriate cached snapshot folder for the specified revision on the local disk"),
    ("model-not-cached", "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach "
     "https://example.invalid/api: offline mode is enabled."),
    ("model-files-missing", "OSError: /models/x does not appear to have a file named config.json. "
     "Checkout the page for available files."),
    ("model-files-missing", "OSError: ./nothing is not a local folder and is not a valid model "
     "identifier listed on the hub"),
    ("model-files-missing", "RuntimeError: Cannot find any model weights with `/models/x`"),
    ("model-files-missing", "huggingface_hub.errors.HFValidationError: Repo id must be in the form "
     "'repo_name' or 'namespace/repo_name': '/models/x'."),
    ("tokenizer-missing", "TypeError: not a string"),
    ("tokenizer-missing", "OSError: Can't load tokenizer for '/models/x'. If you were trying to"),
    ("model-file-broken", "safetensors_rust.SafetensorError: Error while deserializing header: "
     "MetadataIncompleteBuffer"),
    ("disk-full", "OSError: [Errno 28] No space left on device"),
    ("fd-limit", "OSError: [Errno 24] Too many open files"),
    ("thread-limit", "RuntimeError: can't start new thread"),
    ("permission-denied", "PermissionError: [Errno 13] Permission denied: '/root/.cache/hub'"),
    ("tp-shape-quant", "ValueError: The input size is not aligned with the quantized weight shape. "
     "This can be caused by too large tensor parallel size."),
    ("tp-shape-quant", "ValueError: Weight output_partition_size = 1504 is not divisible by weight "
     "quantization block_n = 128."),
    ("tp-not-divisible", "ValueError: Total number of attention heads (14) must be divisible by "
     "tensor parallel size (4)."),
    ("tp-not-divisible", "AssertionError: 25 is not divisible by 2"),
    ("tp-not-divisible", "ValueError: `num_heads` must be divisible by `num_shards` (got "
     "`num_heads`: 71 and `num_shards`: 4)"),
    ("max-model-len-too-large", "ValueError: User-specified max_model_len (65536) is greater than "
     "the derived max_model_len (max_position_embeddings=32768 or model_max_length=None)"),
    ("quantization-unsupported", "ValueError: Unknown quantization method: hqq. Must be one of"),
    ("quantization-unsupported", "ValueError: torch.bfloat16 is not supported for quantization "
     "method awq. Supported dtypes: [torch.float16]"),
    ("model-unsupported", "ValueError: Model architectures ['FooForCausalLM'] are not supported for "
     "now. Supported architectures: dict_keys"),
    ("model-unsupported", "ValueError: The checkpoint you are trying to load has model type `foo` "
     "but Transformers does not recognize this architecture."),
    ("needs-trust-remote-code", "ValueError: Loading /m requires you to execute the configuration "
     "file in that repo on your local machine. Make sure you have read the code there, then set "
     "the option `trust_remote_code=True` to remove this error."),
    ("weights-mismatch", "ValueError: There is no module or parameter named 'lm_head' in Model"),
    ("weights-mismatch", "KeyError: 'model.layers.0.mlp.gate_up_proj.weight_scale_inv'"),
    ("compiler-killed", "RuntimeError: nvcc error : 'cicc' died due to signal 9 (Kill signal)"),
    ("mps-failed", "RuntimeError: CUDA error: MPS client failed to connect to the MPS control "
     "daemon or the MPS server"),
    ("gpu-lost", "RuntimeError: CUDA error: GPU is lost. Reboot the system to recover this GPU"),
]  # fmt: skip

# What one engine prints in its own way.
PRINTED: list[tuple[str, str, str]] = [
    ("cuda-oom", "", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 128 MiB"),
    ("kv-cache-too-small", "vllm", "ValueError: To serve at least one request with the models's max "
     "seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache "
     "memory (9.91 GiB). Based on the available memory, the estimated maximum model length is "
     "81136. Try increasing `gpu_memory_utilization`"),
    ("kv-cache-too-small", "vllm", "ValueError: The model's max seq len (32768) is larger than the "
     "maximum number of tokens that can be stored in KV cache (20464). Try increasing"),
    ("no-kv-memory", "vllm", "ValueError: No available memory for the cache blocks. Try increasing"),
    ("kv-pool-empty", "sglang", "RuntimeError: Not enough memory. Please try to increase "
     "--mem-fraction-static."),
    ("kv-pool-exhausted", "sglang", "RuntimeError: alloc_req_slots runs out of memory. Please set a "
     "smaller number for `--max-running-requests`."),
    ("executor-oom", "trtllm", "RuntimeError: Executor creation failed due to insufficient GPU "
     "memory."),
    ("plan-version-mismatch", "trtllm", "RuntimeError: The engine plan file is not compatible with "
     "this version of TensorRT"),
    ("cuda-oom-buffers", "llamacpp", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 "
     "MiB on device 0: cudaMalloc failed: out of memory"),
    ("cuda-oom-buffers", "llamacpp", "ggml_vulkan: Device memory allocation of size 1073741824 "
     "failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"),
    ("host-oom", "llamacpp", "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of "
     "size 68719476736"),
    ("model-unsupported", "llamacpp", "llama_model_load: error loading model: error loading model "
     "architecture: unknown model architecture: 'qwen9'"),
    ("model-unsupported", "llamacpp", "llama_model_load: error loading model: error loading model "
     "vocabulary: unknown pre-tokenizer type: 'foo'"),
    ("model-file-broken", "llamacpp", "llama_model_load: error loading model: tensor "
     "'blk.20.ffn_down.weight' data is not within the file bounds, model is corrupted or incomplete"),
    ("model-file-broken", "llamacpp", "gguf_init_from_file_impl: invalid magic characters: '<htm', "
     "expected 'GGUF'"),
    ("model-files-missing", "llamacpp", "gguf_init_from_file: failed to open GGUF file '/m.gguf'"),
    ("gpu-driver-extension-missing", "llamacpp", "llama_model_load: error loading model: "
     "vk::PhysicalDevice::createDevice: ErrorExtensionNotPresent"),
    ("model-load-failed", "llamacpp", "llama_model_load: error loading model: check_tensor_dims"),
    ("gpu-fault", "llamacpp", "ROCm error: unspecified launch failure"),
    ("cuda-illegal-memory-access", "llamacpp", "CUDA error: an illegal memory access was encountered"
     "\n  current device: 0, in function ggml_backend_cuda_synchronize at ggml-cuda.cu:2500"),
    ("aborted", "llamacpp", "/src/ggml/src/ggml.c:3500: GGML_ASSERT(a->ne[2] == b->ne[0]) failed"),
    ("missing-shared-library", "plain", "llama-server: error while loading shared libraries: "
     "libcuda.so.1: cannot open shared object file: No such file or directory"),
    ("command-missing", "plain", "bash: vllm: command not found"),
    ("command-missing", "plain", "/usr/bin/python3: No module named vllm"),
    ("command-missing", "plain", "zsh: command not found: sglang"),
    ("bad-argument", "plain", "usage: vllm serve [model_tag] [options]\nvllm serve: error: "
     "unrecognized arguments: --tensor-paralel-size 4"),
    ("bad-argument", "plain", "usage: launch_server.py [-h] --model-path MODEL_PATH\n"
     "launch_server.py: error: argument --dtype: invalid choice: 'fp12' (choose from 'auto')"),
    ("bad-argument", "plain", "error: invalid argument: --ctx-sizes\nllama-server exiting"),
    ("illegal-instruction", "plain", "Illegal instruction (core dumped)\nllama-server"),
    ("segmentation-fault", "plain", "vllm serve\nFatal Python error: Segmentation fault"),
    ("container-without-gpu", "plain", 'docker: Error response from daemon: could not select device '
     'driver "" with capabilities: [[gpu]].\nvllm exited with code 125'),
    ("host-oom-killed", "plain", "vllm.service: A process of this unit has been killed by the OOM "
     "killer.\nvllm.service: Main process exited, code=killed, status=9/KILL"),
    ("slurm-time-limit", "plain", "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT "
     "2026-01-01T00:00:00 DUE TO TIME LIMIT ***\nvllm serve"),
]  # fmt: skip

# Whole stories of one engine, where the order matters.
STORIES: dict[str, tuple[str, str]] = {
    "port-in-use": (
        "vllm",
        "INFO 05-01 10:00:00 api_server.py:257] vLLM API server version 0.5.4\n"
        "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address "
        "already in use\nINFO:     Waiting for application shutdown.\n",
    ),
    "watchdog-timeout": (
        "sglang",
        "[2025-09-01 08:00:00] The server is fired up and ready to roll!\n"
        "[2025-09-01 08:10:00 TP3] Watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
        "[2025-09-01 08:10:05] Received sigquit from a child process.\n",
    ),
    "nccl-collective-timeout": (
        "vllm",
        "INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.1\n"
        "[rank1]:[E501 10:10:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n",
    ),
    "hang-detected": (
        "vllm",
        "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"
        "ERROR 05-01 10:00:00 [core.py:588] EngineCore encountered a fatal error.\n"
        "ERROR 05-01 10:00:00 [core.py:588] TimeoutError: RPC call to execute_model timed out.\n",
    ),
    "start-timeout": (
        "vllm",
        "(APIServer pid=1) INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.33.0\n"
        "(APIServer pid=1) RuntimeError: Timed out waiting for engine core processes to start. This "
        "is often caused by slow weight loading\n",
    ),
    "warmup-through-proxy": (
        "sglang",
        "[2025-01-01 08:00:00] server_args=ServerArgs(model_path='/m')\n"
        "[2025-01-01 08:00:09] INFO:     Application startup complete.\n"
        "[2025-01-01 08:00:12] Initialization failed. warmup error: Traceback (most recent call "
        'last):\n  File "/x/http_server.py", line 700, in _execute_server_warmup\n'
        '    assert res.status_code == 200, f"{res=}, {res.text=}"\n'
        "AssertionError: res=<Response [502]>, res.text=''\n\nKilled\n",
    ),
    "warmup-failed": (
        "sglang",
        "[2025-01-01 08:00:00] server_args=ServerArgs(model_path='/m')\n"
        "[2025-01-01 08:00:09] INFO:     Application startup complete.\n"
        "[2025-01-01 08:00:12] Initialization failed. warmup error: Traceback (most recent call "
        'last):\n  File "/x/http_server.py", line 700, in _execute_server_warmup\n    go()\n'
        "requests.exceptions.ReadTimeout: nothing for 600 s\n\nKilled\n",
    ),
    "worker-died": (
        "vllm",
        "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"
        "(EngineCore_DP0 pid=9) ERROR 05-01 10:00:00 [multiproc_executor.py:230] Worker proc "
        "VllmWorker-1 died unexpectedly, shutting down executor.\n"
        "(APIServer pid=1) ERROR 05-01 10:00:01 [async_llm.py:480] "
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n",
    ),
    "engine-crash": (
        "vllm",
        "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"
        "(EngineCore_DP0 pid=9) ERROR 05-01 10:00:00 [core.py:710] EngineCore encountered a fatal "
        "error.\n(EngineCore_DP0 pid=9) ERROR 05-01 10:00:00 [core.py:710] Traceback (most recent "
        "call last):\n"
        '(EngineCore_DP0 pid=9) ERROR 05-01 10:00:00 [core.py:710]   File "/x/a.py", line 3, in f\n'
        "(EngineCore_DP0 pid=9) ERROR 05-01 10:00:00 [core.py:710] IndexError: out of range\n",
    ),
    "scheduler-exception": (
        "sglang",
        "[2025-09-01 08:00:00] The server is fired up and ready to roll!\n"
        "[2025-09-01 08:10:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/scheduler.py", line 99, in step\n    go()\nIndexError: list index out of range\n'
        "\n[2025-09-01 08:10:01] Received sigquit from a child process.\nKilled\n",
    ),
    "killed-no-message": (
        "sglang",
        "[2025-09-01 08:00:00] server_args=ServerArgs(model_path='/m')\n"
        "[2025-09-01 08:00:05 TP0] Load weight begin. avail mem=78.50 GB\n"
        "[2025-09-01 08:09:05] Rank 0 scheduler died during initialization (exit code: -9). If exit "
        "code is -9 (SIGKILL), a common cause is the OS OOM killer.\n",
    ),
    "sigbus": (
        "tgi",
        "2024-03-06T17:53:22.336246Z  INFO shard-manager: text_generation_launcher: Starting shard\n"
        "2024-03-06T17:53:31.052444Z ERROR shard-manager: text_generation_launcher: Shard process "
        "was signaled to shutdown with signal 7 rank=0\nError: ShardCannotStart\n",
    ),
    "shard-failed": (
        "tgi",
        "2024-03-06T17:53:22.336246Z  INFO shard-manager: text_generation_launcher: Starting shard\n"
        "2024-03-06T17:53:31.149443Z ERROR text_generation_launcher: Shard 0 failed to start\n"
        "Error: ShardCannotStart\n",
    ),
    "webserver-failed": (
        "tgi",
        "2024-03-06T17:53:22.336246Z  INFO text_generation_launcher: Starting Webserver\n"
        "2024-03-06T17:53:31.149443Z ERROR text_generation_launcher: Webserver Crashed\n"
        "Error: WebserverFailed\n",
    ),
    "download-failed": (
        "tgi",
        "2024-03-06T17:53:22.336246Z  INFO text_generation_launcher: Starting check and download\n"
        "2024-03-06T17:53:31.149443Z ERROR download: text_generation_launcher: Download encountered "
        'an error:\nrequests.exceptions.ConnectionError: (MaxRetryError("Failed to resolve '
        "'hub.invalid' ([Errno -3] Temporary failure in name resolution)\"))\nError: DownloadError\n",
    ),
    "mpi-failed": (
        "trtllm",
        "[TensorRT-LLM] TensorRT LLM version: 1.1.0\n"
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n",
    ),
    "executor-failed": (
        "trtllm",
        "[TensorRT-LLM] TensorRT LLM version: 1.1.0\n"
        "[01/05/2026-12:00:10] [TRT-LLM] [E] Failed to initialize executor on rank 0: nope\n",
    ),
    "runner-terminated": (
        "ollama",
        'time=2025-07-16T20:07:50.1+02:00 level=INFO source=routes.go:1 msg="Listening on '
        '127.0.0.1:11434 (version 0.9.6)"\n'
        'time=2025-07-16T20:07:57.6+02:00 level=ERROR source=sched.go:489 msg="error loading llama '
        'server" error="llama runner process has terminated: exit status 2"\n'
        '[GIN] 2025/07/16 - 20:07:57 | 500 |  720.9988ms |  127.0.0.1 | POST     "/api/generate"\n',
    ),
    "config-invalid": (
        "vllm",
        "(APIServer pid=1) INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "/x/cli.py", line 3, in main\n'
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for "
        "ModelConfig\n(APIServer pid=1)   Value error, unheard-of combination\n",
    ),
    "peer-lost": (
        "vllm",
        "INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.1\n"
        "ERROR 05-01 10:00:02 [core.py:515] EngineCore failed to start.\n"
        "ERROR 05-01 10:00:02 [core.py:515] RuntimeError: [../gloo/transport/tcp/pair.cc:534] "
        "Connection closed by peer [10.0.0.5]:1234\n",
    ),
    "operator-stop": (
        "vllm",
        "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"
        "(APIServer pid=1) INFO 08-02 11:46:06 [launcher.py:100] [shutdown] API server: shutdown "
        "triggered\n(APIServer pid=1) ERROR 08-02 11:46:07 [async_llm.py:700] AsyncLLM "
        "output_handler failed.\n(APIServer pid=1) ERROR 08-02 11:46:07 [async_llm.py:700] "
        "Traceback (most recent call last):\n"
        '(APIServer pid=1) ERROR 08-02 11:46:07 [async_llm.py:700]   File "/x/a.py", line 1, in f\n'
        "(APIServer pid=1) ERROR 08-02 11:46:07 [async_llm.py:700] "
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n",
    ),
}


@pytest.mark.parametrize("engine", failing.PYTHON)
@pytest.mark.parametrize(("cause", "error"), RAISED)
def test_an_exception_is_named_whatever_engine_raises_it(
    engine: str, cause: str, error: str
) -> None:
    text = failing.PYTHON[engine](error)
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert verdict.engine == engine.partition("-")[0]
    assert verdict.outcome == "crash"
    assert verdict.cause == cause, verdict.title
    assert verdict.ready_line is None
    assert verdict.evidence is not None
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines, 1) if error.split("\n")[0] in line)
    assert verdict.evidence.line == first


@pytest.mark.parametrize(("cause", "engine", "error"), PRINTED)
def test_what_an_engine_prints_in_its_own_way_is_named(cause: str, engine: str, error: str) -> None:
    around = getattr(failing, engine) if engine else failing.plain
    verdict = diagnose_bytes(around(error).encode(), CATALOGUE)
    assert verdict.cause == cause, verdict.title
    assert verdict.outcome == "crash"
    assert verdict.remedies


@pytest.mark.parametrize("cause", STORIES)
def test_a_story_is_understood(cause: str) -> None:
    engine, text = STORIES[cause]
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert verdict.engine == engine
    assert verdict.cause == cause, verdict.title
    outcome = CATALOGUE.get(cause)
    assert outcome is not None
    assert verdict.outcome == outcome.entry.outcome
    assert "{" not in verdict.title


def test_out_of_memory_is_told_apart_by_when_it_happens() -> None:
    early = failing.sglang(OOM).replace("Load weight end.", "nothing")
    assert diagnose_bytes(early.encode(), CATALOGUE).cause == "cuda-oom-weights"
    late = failing.sglang(OOM)
    assert diagnose_bytes(late.encode(), CATALOGUE).cause == "cuda-oom-late"


@pytest.mark.parametrize(
    "words",
    [
        "[2025-09-01 08:09:05] Child process unexpectedly failed with exitcode=-9. pid=430190",
        "[2025-09-01 08:09:05] Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        "[2025-09-01 08:09:05] Rank 3 scheduler is dead. Exit code: -9",
    ],
)
def test_a_child_that_was_killed_is_told_from_one_that_failed(words: str) -> None:
    start = "[2025-09-01 08:00:00] server_args=ServerArgs(model_path='/m')\n"
    tail = "\n[2025-09-01 08:09:06] Received sigquit from a child process.\nKilled\n"
    verdict = diagnose_bytes((start + words + tail).encode(), CATALOGUE)
    assert verdict.cause == "killed-no-message"


def test_the_engine_core_that_was_killed_is_told_by_its_exit_code() -> None:
    text = failing.vllm("x").split("ERROR 10-02")[0] + (
        "\n(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {'EngineCore_DP0': -9}\n"
    )
    assert diagnose_bytes(text.encode(), CATALOGUE).cause == "killed-no-message"


def test_every_cause_has_an_example_here() -> None:
    shown = {cause for cause, _ in RAISED} | {cause for cause, _, _ in PRINTED} | set(STORIES)
    shown |= {cause for cause, _ in failures.RAISED}
    shown |= {"cuda-oom-weights", "cuda-oom-late", "workers-wait", "worker-timeout"}  # elsewhere
    shown.add("worker-killed")
    assert {cause.id for cause in CATALOGUE.causes} - shown == set()


def test_every_cause_says_what_to_try() -> None:
    for cause in CATALOGUE.causes:
        assert cause.entry.title
        assert cause.entry.remedies or cause.kind == "stop", cause.id
        assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", cause.id)


def test_numbers_of_the_message_go_into_the_remedy() -> None:
    text = failing.vllm({one: three for one, _, three in PRINTED}["kv-cache-too-small"])
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert "Start with --max-model-len 20464 or less" in verdict.remedies


# --- the file ----------------------------------------------------------------------------------

OWN = """
[[cause]]
id = "our-driver-bug"
title = "the bug of ticket {ticket}"
signatures = ['internal failure (?P<ticket>\\w+-\\d+)']
remedies = ["see {ticket}", "ask {nobody}"]
[[cause]]
id = "disk-full"
title = "our own words"
signatures = ['no space left']
"""


def test_a_users_own_causes_come_first_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    catalogue = load_catalogue(path)
    text = failing.sglang("RuntimeError: internal failure OPS-77").encode()
    verdict = diagnose_bytes(text, catalogue)
    assert verdict.cause == "our-driver-bug"
    assert verdict.title == "the bug of ticket OPS-77"
    assert verdict.remedies == ("see OPS-77",)
    full = failing.sglang("OSError: [Errno 28] No space left on device").encode()
    assert diagnose_bytes(full, catalogue).title == "our own words"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[cause]]\nid = 'a'\ntitle = 'b'\nsignatures = ['(']", "no regular expression"),
        ("[[cause]]\nid = 'a'\ntitle = 'b'\nsignatures = ['CUDA']", "capital letters"),
        ("[[cause]]\nid = 'a'\ntitle = 'b'\nsignatures = []", "no signature"),
        ("[[cause]]\nid = 'a'\ntitle = 'b'", "signatures"),
        ("[[cause]]\nid = 'a'\ntitle = 'b'\nsignatures = ['x']\nkind = 'y'", "kind"),
        ("[[cause]]\nid = 'a'\ntitle = 'b'\nsignatures = ['x']\nsig = 1", "sig"),
        ("[[cause]", "TOML"),
        (2 * "[[cause]]\nid = 'a'\ntitle = 'b'\nsignatures = ['x']\n", "twice"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_its_reason(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_catalogue(path)
    assert words in caught.value.title
    assert str(path) in caught.value.detail


def test_a_catalogue_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_catalogue(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("version", "spec", "within"),
    [
        ("0.5.10", ">=0.5,<0.6", True),
        ("0.6", ">=0.5,<0.6", False),
        ("0.11.0+torch271", ">=0.11", True),
        ("b8173", "<8000", False),
        (None, "<1", True),
        ("1.0", "", True),
        ("1.0.0", "==1", True),
        ("1.0", "whatever", True),
    ],
)
def test_versions(version: str | None, spec: str, within: bool) -> None:
    assert version_within(version, spec) is within


def test_a_cause_of_other_versions_is_passed_over() -> None:
    entries = parse_catalogue(
        "[[cause]]\nid='old'\ntitle='t'\nsignatures=['boom']\nversions='<0.11'\n"
        "[[cause]]\nid='new'\ntitle='t'\nsignatures=['boom']\n"
    )
    catalogue: Catalogue = build_catalogue(entries)
    text = failing.vllm("RuntimeError: boom").encode()
    assert diagnose_bytes(text, catalogue).cause == "new"
    older = text.replace(b"0.11.0", b"0.10.2")
    assert diagnose_bytes(older, catalogue).cause == "old"


def test_templates() -> None:
    assert fill("a {b}", {"b": "c"}) == "a c"
    assert fill("a {b}", {}) is None
    assert fill_title("a: {b}", {}) == "a"
    assert fill_title("a: {b}", {"b": "{c}"}) == "a: {c}"


@pytest.mark.parametrize("signature", ["(a+)+b", "(?:.*x)*y", "(a{2,9})*b", "x" * 600])
def test_a_signature_that_could_take_for_ever_is_refused(signature: str) -> None:
    text = f'[[cause]]\nid = "own"\ntitle = "t"\nsignatures = [\'{signature}\']\nremedies = ["r"]\n'
    with pytest.raises(ConfigError, match="too long, or a repetition of a repetition"):
        parse_catalogue(text)
