"""What nvbandwidth and nccl-tests print, in their forms, with figures of our own."""

from __future__ import annotations

NVBANDWIDTH = """\
nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
CUDA Driver Version: 12080
Driver Version: 580.65.06

gpu01
Device 0: NVIDIA H200 (00000000:01:00)
Device 1: NVIDIA H200 (00000000:02:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.31     54.92

SUM host_to_device_memcpy_ce 110.23

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     56.11     23.40

SUM device_to_host_memcpy_ce 79.51

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    391.40
 1    388.20       N/A

SUM device_to_device_memcpy_write_ce 779.60

Running device_to_device_bidirectional_memcpy_write_ce.
memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A    741.40
 1    738.20       N/A

NOTE: The reported results may not reflect the full capabilities of the platform.
"""
NVBANDWIDTH_JSON = """\
{
   "nvbandwidth" : {
      "CUDA Runtime Version" : 12080,
      "Driver Version" : "580.65.06",
      "GPU Device list" : [ "0: NVIDIA H200 (00000000:01:00)", "1: NVIDIA H200 (00000000:02:00)" ],
      "git_version" : "v0.8",
      "testcases" : [
         {
            "bandwidth_description" : "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
            "bandwidth_matrix" : [ [ "55.31", "54.92" ] ],
            "name" : "host_to_device_memcpy_ce",
            "status" : "Passed",
            "sum" : 110.23
         },
         { "name" : "device_to_device_memcpy_read_ce", "status" : "Waived" }
      ]
   }
}
"""
ALL_REDUCE = """\
# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8192 maxBytes 134217728 step: 4(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on      gpu01 device  0 [0000:01:00] NVIDIA H200
#  Rank  1 Group  0 Pid   4711 on      gpu01 device  1 [0000:02:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    13.21    0.62    0.62      0    12.80    0.64    0.64      0
       32768          8192     float     sum      -1    14.02    2.34    2.34      0    13.90    2.36    2.36      0
   134217728      33554432     float     sum      -1    611.3  219.56  219.56      0    608.1  220.72  220.72    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 74.5
#
"""  # noqa: E501
