"""Printed output of tools, written for these tests after the tools' own formats."""

from __future__ import annotations

SMI_TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
| N/A   41C    P0            412W /  700W |   70112MiB /  81559MiB |     99%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          Off |   00000000:3B:00.0 Off |                    2 |
| N/A   44C    P0            420W /  700W |   70112MiB /  81559MiB |     99%   E. Process |
|                                         |                        |             Enabled* |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A           41337      C   sglang::scheduler                      70098MiB |
|    1   N/A  N/A           41338      C   sglang::scheduler                      70098MiB |
+-----------------------------------------------------------------------------------------+
"""

SMI_CSV = """\
index, pci.bus_id, name, power.draw [W], enforced.power.limit [W], clocks_event_reasons.active, pstate
0, 00000000:01:00.0, NVIDIA GeForce RTX 4090, 120.10 W, 450.00 W, 0x0000000000000004, P0
1, 00000000:02:00.0, NVIDIA GeForce RTX 4090, 448.92 W, 450.00 W, 0x0000000000000004, P0
2, 00000000:03:00.0, NVIDIA GeForce RTX 4090, [N/A], 450.00 W, 0x0000000000000040, P0
"""

SMI_Q_SICK = """\
Driver Version                            : 570.86.15
Attached GPUs                             : 2
GPU 00000000:41:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 4
        Aggregate
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : 12
            DRAM Uncorrectable            : 9
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 8
        Pending                           : No
        Remapping Failure Occurred        : Yes
    Fabric
        State                             : In Progress
        Status                            : N/A
GPU 00000000:81:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    ECC Errors
        Volatile
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 0
        Aggregate
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 9
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : No
"""

TOPO = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNODE\tSYS\tSYS\tPIX\t0-63\t0\t\tN/A
GPU1\tNODE\t X \tSYS\tSYS\tNODE\t0-63\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNODE\tSYS\t64-127\t1\t\tN/A
GPU3\tSYS\tSYS\tNODE\t X \tSYS\t64-127\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NIC0: mlx5_0
"""

P2P_MATRIX = """\
 \tGPU0\tGPU1\tGPU2
 GPU0\tX\tOK\tOK
 GPU1\tOK\tX\tOK
 GPU2\tOK\tOK\tX

Legend:

  X    = Self
  OK   = Status Ok
"""

LSPCI_TREE = """\
00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 153f (rev 01) (prog-if 00 [Normal decode])
\tNUMA node: 0
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00
\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 <64us
\t\tLnkCtl:\tASPM L1 Enabled; RCB 64 bytes, Disabled- CommClk+
\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)
\tCapabilities: [2a0 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport
01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1) (prog-if 00 [VGA controller])
\tNUMA node: 0
\tRegion 0: Memory at f0000000 (32-bit, non-prefetchable) [size=16M]
\tRegion 1: Memory at 28000000000 (64-bit, prefetchable) [size=32G]
\tRegion 3: Memory at 28800000000 (64-bit, prefetchable) [size=32M]
\tCapabilities: [78] Express (v2) Legacy Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 256 bytes, PhantFunc 0, Latency L0s unlimited, L1 <64us
\t\tDevCtl:\tCorrErr- NonFatalErr- FatalErr- UnsupReq-
\t\t\tRlxdOrd- ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-
\t\t\tMaxPayload 128 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <4us
\t\tLnkCtl:\tASPM L1 Enabled; RCB 64 bytes, Disabled- CommClk+
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
\tKernel driver in use: nouveau
02:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)
\tRegion 0: Memory at d0000000 (32-bit, non-prefetchable) [size=64M]
"""

LSPCI_DENIED = """\
06:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 16c1
\tFlags: bus master, fast devsel, latency 0, IRQ 18, NUMA node 0
\tMemory at 9f040000000 (64-bit, prefetchable) [size=16M]
\tMemory at 9e000000000 (64-bit, prefetchable) [size=128G]
\tCapabilities: <access denied>
\tKernel driver in use: nvidia
"""

LSCPU_OFFLINE = """\
Architecture:             x86_64
CPU(s):                   256
  On-line CPU(s) list:    0-238,240-255
  Off-line CPU(s) list:   239
Vendor ID:                AuthenticAMD
  Model name:             AMD EPYC 9755 128-Core Processor
    CPU family:           26
    Thread(s) per core:   1
    Socket(s):            2
NUMA:
  NUMA node(s):           2
  NUMA node0 CPU(s):      0-127
  NUMA node1 CPU(s):      128-238,240-255
"""

CPUPOWER_NO_DRIVER = """\
analyzing CPU 0:
  no or unknown cpufreq driver is active on this CPU
  CPUs which run at the same hardware frequency: Not Available
  CPUs which need to have their frequency coordinated by software: Not Available
  maximum transition latency:  Cannot determine or is not supported.
Not Available
  available cpufreq governors: Not Available
  Unable to determine current policy
  current CPU frequency: Unable to call hardware
  boost state support:
    Supported: yes
    Active: no
"""

CPUPOWER_GOOD = """\
analyzing CPU 3:
  driver: amd-pstate-epp
  CPUs which run at the same hardware frequency: 3
  energy performance preference: performance
  hardware limits: 400 MHz - 4.12 GHz
  available cpufreq governors: performance powersave
  current policy: frequency should be within 400 MHz and 4.12 GHz.
                  The governor "performance" may decide which speed to use
                  within this range.
  current CPU frequency: 4.11 GHz (asserted by call to kernel)
  boost state support:
    Supported: yes
    Active: yes
"""

CPUPOWER_IDLE = """\
CPUidle driver: intel_idle
CPUidle governor: menu
analyzing CPU 0:

Number of idle states: 4
Available idle states: POLL C1 C1E C6
POLL:
Flags/Description: CPUIDLE CORE POLL IDLE
Latency: 0
Usage: 12
Duration: 34
C1:
Flags/Description: MWAIT 0x00
Latency: 1
Usage: 12
Duration: 34
C1E:
Flags/Description: MWAIT 0x01
Latency: 2
Usage: 12
Duration: 34
C6 (DISABLED) :
Flags/Description: MWAIT 0x20
Latency: 290
Usage: 0
Duration: 0
"""

DMESG_SICK = """\
[    0.000000] Linux version 6.8.12-9-pve (build@proxmox) #1 SMP PREEMPT_DYNAMIC PMX 6.8.12-9
[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-6.8.12-9-pve root=/dev/mapper/pve-root ro quiet
[    0.612345] iommu: Default domain type: Translated
[    1.702345] acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug SHPCHotplug PME AER PCIeCapability LTR]
[    9.812345] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (dvs-builder@U22)
[  812.312345] NVRM: GPU at PCI:0000:c1:00: GPU-00000000-0000-4000-8000-000000000002
[  812.312399] NVRM: Xid (PCI:0000:c1:00): 119, pid=4242, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080 0x0).
[  830.112345] NVRM: Xid (PCI:0000:c1:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault
[  835.112345] NVRM: Xid (PCI:0000:c1:00): 31, pid=4243, name=python3, Ch 00000008, intr 00000000. MMU Fault
[  836.112345] NVRM: Xid (PCI:0000:c1:00): 31, pid=4244, name=python3, Ch 00000008, intr 00000000. MMU Fault
[  900.100000] pcieport 0000:c0:01.1: AER: Uncorrectable (Fatal) error message received from 0000:c1:00.0
[  900.100010] pcieport 0000:c0:01.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Requester ID)
[  900.200000] NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.
[  950.100000] Out of memory: Killed process 4242 (python3) total-vm:1234kB
[  999.100000] watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:4242]
"""

LXC_STALE = """\
#GPU container
arch: amd64
cores: 64
features: nesting=1
hostname: inference
memory: 524288
ostype: ubuntu
rootfs: local-zfs:subvol-129-disk-0,size=500G
swap: 0
unprivileged: 1
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c 504:* rwm
lxc.cgroup2.devices.allow: c 507:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
lxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-caps/nvidia-cap1 dev/nvidia-caps/nvidia-cap1 none bind,optional,create=file

[before-upgrade]
arch: amd64
cores: 8
lxc.cgroup2.devices.allow: c 504:* rwm
memory: 8192
"""

LXC_DEVN = """\
arch: amd64
cores: 64
features: nesting=1
hostname: inference
memory: 524288
ostype: ubuntu
rootfs: local-zfs:subvol-130-disk-0,size=500G
swap: 0
unprivileged: 1
dev0: /dev/nvidia0,mode=0666
dev1: /dev/nvidiactl,mode=0666
dev2: /dev/nvidia-uvm,mode=0666
"""

PROC_DEVICES = """\
Character devices:
  1 mem
  5 /dev/tty
195 nvidia
195 nvidiactl
226 drm
237 nvidia-caps
509 nvidia-uvm

Block devices:
  8 sd
504 zvol
"""

DEV_LISTING = """\
crw-rw-rw- 1 root root 195,   0 Mar  3 09:12 /dev/nvidia0
crw-rw-rw- 1 root root 195, 255 Mar  3 09:12 /dev/nvidiactl
crw-rw-rw- 1 root root 504,   0 Mar  3 09:12 /dev/nvidia-uvm
crw-rw-rw- 1 root root 504,   1 Mar  3 09:12 /dev/nvidia-uvm-tools
"""

STRACE = """\
openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = 3
openat(AT_FDCWD, "/dev/nvidia-uvm", O_RDWR|O_CLOEXEC) = -1 EPERM (Operation not permitted)
cuInit(0) returned 999
"""

FABRIC_INACTIVE = """\
$ systemctl is-active nvidia-fabricmanager
inactive
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Fabric
        State                             : In Progress
        Status                            : N/A
"""

AER_FATAL = """\
[ 4211.002103] pcieport 0000:40:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:41:00.0
[ 4211.002110] nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)
[ 4211.002113] nvidia 0000:41:00.0:   device [10de:2204] error status/mask=00100000/00000000
[ 4211.002115] nvidia 0000:41:00.0:    [20] UnsupReq               (First)
"""

POWER_FAR = """\
GPU 00000000:1A:00.0
    Performance State                     : P0
    Clocks Throttle Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
        Display Clock Setting             : Not Active
    Power Readings
        Power Management                  : Supported
        Power Draw                        : 101.23 W
        Power Limit                       : 300.00 W
        Default Power Limit               : 300.00 W
        Enforced Power Limit              : 300.00 W
        Min Power Limit                   : 150.00 W
        Max Power Limit                   : 300.00 W
"""

NVLINK = (
    """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000001)
"""
    + "".join(f"\t Link {n}: 25 GB/s\n" for n in range(12))
    + """\
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000002)
"""
    + "".join(f"\t Link {n}: {'25 GB/s' if n else '<inactive>'}\n" for n in range(12))
)

SMALL_TOOLS = """\
$ tuned-adm active
Current active profile: balanced
$ timedatectl
               Local time: Wed 2026-12-02 10:00:00 UTC
System clock synchronized: yes
              NTP service: active
$ chronyc tracking
System time     : 0.250000000 seconds slow of NTP time
$ ibstat
CA 'mlx5_0'
	CA type: MT4129
	Port 1:
		State: Down
		Physical state: LinkErrorRecovery
		Rate: 10
		Link layer: InfiniBand
MemTotal:       2113532416 kB
SwapTotal:             0 kB
vm.swappiness = 60
"""

CPUINFO = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model name\t: AMD EPYC 9755 128-Core Processor
Linux gpu07 6.8.0-60-generic #63-Ubuntu SMP x86_64 GNU/Linux
"""

TORCH_802 = """\
UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized
Host: 8x H100 SXM5
fabricmanager[2211]: fabric manager NVIDIA GPU driver interface version 550.54.14 don't match with driver version 550.54.15. Please update.
nvidia-fabricmanager.service: Failed with result 'exit-code'.
"""

MISMATCH = """\
$ nvidia-smi
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 575.57
"""

ALL = {name: value for name, value in globals().items() if name.isupper() and name != "ALL"}
