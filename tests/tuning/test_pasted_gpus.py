"""GPUs as nvidia-smi and the CUDA samples print them: lost ones, instances, refusals, peers."""

from __future__ import annotations

import pytest

from tests.tuning.test_readers import verdicts

ROW = """\
|   {n}  {name:<32} On  |   00000000:{bus}:00.0 Off |                 {ecc:>4} |
| N/A   35C    P0              90W /  400W |      40MiB /  81920MiB |      0%      Default |
|                                         |                        |             {mig:>8} |
+-----------------------------------------+------------------------+----------------------+
"""
HEAD = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.127.08             Driver Version: 550.127.08     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
INSTANCES = """\
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
|  0    3   0   0  |              25MiB / 19968MiB    | 28      {a} |  2   0    1    0    0 |
|                  |                 0MiB / 32767MiB  |           |                       |
|  0    5   0   1  |              25MiB / 19968MiB    | 28      {b} |  2   0    1    0    0 |
"""
CUT = HEAD + ROW.format(n=0, name="NVIDIA A100-SXM4-80GB", bus="07", ecc="On", mig="Enabled")
LOST_OLD = """\
| NVIDIA-SMI 418.87.01    Driver Version: 418.87.01    CUDA Version: 10.1     |
|-------------------------------+----------------------+----------------------+
|   0  Tesla V100-PCIE...  On   | 00000000:3B:00.0 Off |                    0 |
| N/A   35C    P0    37W / 250W |     12MiB / 16130MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  Tesla V100-PCIE...  On   | 00000000:5E:00.0 Off |                 ERR! |
| ERR!  ERR!  ERR!    ERR! / ERR! |    GPU is lost       |    ERR!         ERR! |
+-------------------------------+----------------------+----------------------+
"""
LOST_WHOLE = """\
Attached GPUs                             : 2
GPU 00000000:3B:00.0
    Product Name                          : Tesla V100-PCIE-16GB
GPU 00000000:5E:00.0
    {words}
"""
MIG_WHOLE = """\
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        ECC Errors
            Volatile
                SRAM Uncorrectable        : 0
        FB Memory Usage
            Total                         : 19968 MiB
            Used                          : 19000 MiB
        BAR1 Memory Usage
            Total                         : 32767 MiB
    MIG Device
        Index                             : 1
        ECC Errors
            Volatile
                SRAM Uncorrectable        : {second}
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 0
"""


@pytest.mark.parametrize(
    "text",
    [
        HEAD + ROW.format(n=3, name="ERR!", bus="41", ecc="ERR!", mig="ERR!"),
        HEAD + ROW.format(n=3, name="Unknown Error", bus="41", ecc="N/A", mig="N/A"),
        LOST_OLD,
        LOST_WHOLE.format(words="GPU is lost. Reboot the system to recover this GPU"),
        LOST_WHOLE.format(words="Product Name                          : GPU is lost"),
        "$ nvidia-smi\nNo devices found.\n",
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure\n",
        "Failed to initialize NVML: GPU access blocked by the operating system\n",
    ],
)
def test_a_gpu_that_is_lost_is_not_counted(text: str) -> None:
    assert verdicts(text)["gpu.count"] == "FAIL"


@pytest.mark.parametrize(
    "words", ["Insufficient Permissions", "Unknown Error", "Driver/library version mismatch"]
)
def test_what_nvml_refuses_says_nothing_of_the_count(words: str) -> None:
    assert verdicts(f"Failed to initialize NVML: {words}\n")["gpu.count"] == "UNKNOWN"


def test_errors_of_instances_are_errors_of_their_gpu() -> None:
    assert verdicts(CUT + INSTANCES.format(a=0, b=3))["gpu.ecc_errors"] == "FAIL"
    assert verdicts(CUT + INSTANCES.format(a=0, b=0))["gpu.ecc_errors"] == "PASS"
    assert "gpu.ecc_errors" not in verdicts(CUT)
    assert verdicts(MIG_WHOLE.format(second=0))["gpu.ecc_errors"] == "PASS"
    assert verdicts(MIG_WHOLE.format(second=1))["gpu.ecc_errors"] == "FAIL"
    assert "pcie.bar1" not in verdicts(MIG_WHOLE.format(second=0))  # of an instance alone


BANDWIDTH = """\
Device: 0, NVIDIA GeForce RTX 5090, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA GeForce RTX 5090, pciBusID: c1, pciDeviceID: 0, pciDomainID:0
Device=0 {can} Access Peer Device=1
Device=1 {can} Access Peer Device=0
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 1530.1  40.10
     1  40.22 1531.0
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1530.1  55.10
     1  55.22 1531.0
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.07  {us}
     1  {us}   2.07

   CPU     0      1
     0   1.81  99.02
     1  99.05   1.79
"""


def test_the_sample_s_word_on_peer_access() -> None:
    good = verdicts(BANDWIDTH.format(can="CAN", us="0.51"))
    assert good["gpu.p2p"] == "PASS"
    assert good["bench.p2p"] == "UNKNOWN"  # how fast the link should be was not read
    staged = verdicts(BANDWIDTH.format(can="CAN", us="14.51"))
    assert staged["bench.p2p"] == "FAIL"
    none = verdicts(BANDWIDTH.format(can="CANNOT", us="14.51"))
    assert none["gpu.p2p"] == "WARN"
    assert "bench.p2p" not in none


@pytest.mark.parametrize(
    ("text", "check", "verdict"),
    [
        ("cudaGetDeviceCount returned 999\n-> unknown error\nResult = FAIL\n", "cuda.init", "FAIL"),
        ("cudaGetDeviceCount returned 35\nResult = FAIL\n", "cuda.init", "FAIL"),
        ("cudaGetDeviceCount returned 38\nResult = FAIL\n", "cuda.init", "FAIL"),
        ("Detected 2 CUDA Capable device(s)\n", "cuda.init", "PASS"),
        ("> Peer access from A (GPU0) -> A (GPU1) : No\n", "gpu.p2p", "WARN"),
        (
            "> Peer access from A (GPU0) -> A (GPU1) : Yes\n"
            "> Peer access from A (GPU1) -> A (GPU0) : Yes\n",
            "gpu.p2p",
            "PASS",
        ),
        ("> Peer access from A (GPU0) -> A (GPU1) : Yes\n", "gpu.p2p", "UNKNOWN"),
        (
            "> Peer access from A (GPU0) -> A (GPU1) : Yes\n"
            "Verification error @ element 0: val = 0.000000, ref = 0.000000\n",
            "gpu.p2p_copy",
            "FAIL",
        ),
    ],
)
def test_short_answers_of_the_samples(text: str, check: str, verdict: str) -> None:
    assert verdicts(text)[check] == verdict
