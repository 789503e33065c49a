# ruff: noqa: UP031 - it runs on the host's python
"""A libcuda for tests, in Python: put in the place of the library by a `sitecustomize`.

`FAKE_CUDA` names a JSON file: `gpus` (addresses), `copy_gb_s` (between host and GPU; with `copy_by`
by what that file holds), `memory_gb_s`, `peer_gb_s` (a number, or by "A-B" of indices),
`plain_gb_s`, `fail` (functions that give 999), `corrupt` (pairs whose copies arrive damaged),
`rises` (files, and what they hold once there is load). Memory is real where it is small; time is
that of the bytes, by the GPU's own clock, so that nothing takes long.
"""

import ctypes
import json
import os
import threading
import time

_real = ctypes.CDLL


def world():
    with open(os.environ["FAKE_CUDA"]) as file:
        return json.load(file)


def _value(argument):
    return argument.value if hasattr(argument, "value") else argument


def _out(argument, value):
    argument._obj.value = value


class FakeCuda:
    def __init__(self):
        self.now = {}
        self.current = 0
        self.events = {}
        self.next = 1
        self.memory = {}
        self.peers = set()

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        function = globals().get("_" + name)

        def call(*arguments):
            if name in world().get("fail", ()):
                return 999
            if function is None:
                return 0
            return function(self, *arguments) or 0

        return call

    def spend(self, seconds):
        self.now[self.current] = self.now.get(self.current, 0.0) + seconds

    def handle(self):
        self.next += 1
        return self.next


def _cuDeviceGetCount(cuda, out):
    _out(out, len(world()["gpus"]))


def _cuDeviceGetAttribute(cuda, out, number, device):
    _out(out, {36: 3201000, 37: 6144}.get(_value(number), 0))


def _cuDeviceGetPCIBusId(cuda, buffer, size, device):
    buffer.value = world()["gpus"][device].upper().encode()


def _cuDeviceGetName(cuda, buffer, size, device):
    buffer.value = b"NVIDIA H200"


def _cuDeviceCanAccessPeer(cuda, out, a, b):
    _out(out, int(world().get("peer", True)))


def _cuDevicePrimaryCtxRetain(cuda, out, device):
    _out(out, device + 1)


def _cuCtxSetCurrent(cuda, context):
    cuda.current = _value(context) - 1


def _cuStreamCreate(cuda, out, flags):
    _out(out, cuda.handle())


def _cuEventCreate(cuda, out, flags):
    _out(out, cuda.handle())


def _cuEventRecord(cuda, event, stream):
    cuda.events[_value(event)] = cuda.now.get(cuda.current, 0.0)


def _cuEventElapsedTime(cuda, out, begin, end):
    _out(out, 1e3 * (cuda.events[_value(end)] - cuda.events[_value(begin)]))


def _cuMemGetInfo_v2(cuda, free, total):
    _out(total, 150 << 30)
    _out(free, int(world().get("free_gib", 149)) << 30)


def _cuMemAlloc_v2(cuda, out, size):
    handle = cuda.handle()
    cuda.memory[handle] = b""
    _out(out, handle)


_cuMemHostAlloc = lambda cuda, out, size, flags: _cuMemAlloc_v2(cuda, out, size)  # noqa: E731


def _bytes(cuda, place, size):
    if isinstance(place, ctypes.Array):
        return place.raw[:size]
    return cuda.memory.get(_value(place), b"")[:size]


def _store(cuda, place, data):
    if isinstance(place, ctypes.Array):
        place.raw = data.ljust(len(place), b"\0")
    else:
        cuda.memory[_value(place)] = data


def _copy(cuda, to, source, size, gb_s):
    amount = _value(size)
    if amount <= 1 << 20:
        _store(cuda, to, _bytes(cuda, source, amount))
    cuda.spend(2e-6 + amount / (gb_s * 1e9))


def _cuMemcpyHtoDAsync_v2(cuda, to, source, size, stream):
    known = world()
    rate = known.get("copy_gb_s", 53.0)
    if "copy_by" in known:
        with open(known["copy_by"]) as file:
            rate = known["copy_gb_s"][file.read().strip()]
    _copy(cuda, to, source, size, rate)


_cuMemcpyDtoHAsync_v2 = _cuMemcpyHtoDAsync_v2


def _cuMemcpyDtoDAsync_v2(cuda, to, source, size, stream):
    _copy(cuda, to, source, size, world().get("memory_gb_s", 4400.0) / 2)


def _write(path, text):
    """Whole or not at all: somebody reads it meanwhile."""
    temporary = "%s.%d.%d" % (path, os.getpid(), threading.get_ident())
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def _cuMemsetD32Async(cuda, to, value, size, stream):
    """Only a load fills memory: links rise, slowly enough for a test to see both."""
    _write(os.environ["FAKE_CUDA"] + ".load", str(os.getpid()))
    for path, text in world().get("rises", {}).items():
        _write(path, text)
    time.sleep(0.002)


def _cuCtxEnablePeerAccess(cuda, context, flags):
    cuda.peers.add((cuda.current, _value(context) - 1))


def _cuCtxDisablePeerAccess(cuda, context):
    cuda.peers.discard((cuda.current, _value(context) - 1))


def _cuMemcpyPeerAsync(cuda, to, there, source, here, size, stream):
    a, b = _value(here) - 1, _value(there) - 1
    now = world()
    rate = now.get("plain_gb_s", 11.0)
    if (a, b) in cuda.peers:
        rate = now.get("peer_gb_s", 54.0)
        rate = rate.get("%d-%d" % (a, b), rate["rest"]) if isinstance(rate, dict) else rate
    _copy(cuda, to, source, size, rate)
    if "%d-%d" % (a, b) in now.get("corrupt", ()):
        _store(cuda, to, b"\xff" + _bytes(cuda, to, 1 << 20)[1:])
    if (a, b) not in cuda.peers:
        cuda.spend(12e-6)


def _library(name, *arguments, **more):
    if name == "libcuda.so.1" and "FAKE_CUDA" in os.environ:
        return FakeCuda()
    return _real(name, *arguments, **more)


ctypes.CDLL = _library
