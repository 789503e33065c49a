"""The driver's API through libcuda, as far as measuring needs it; no torch, no toolkit."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, List, Tuple

from . import measure_words


class CudaError(Exception):
    """A call of the driver failed."""


class Cuda:
    """The driver's API, as far as it is needed."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            CudaError: It gave a code other than 0.
        """
        code = getattr(self._lib, name)(*arguments)
        if code != 0:
            raise CudaError("%s gave %d" % (name, code))

    def count(self) -> int:
        """How many GPUs."""
        number = ctypes.c_int(0)
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def attribute(self, device: int, number: int) -> int:
        """An attribute; 0 where it is not known."""
        value = ctypes.c_int(0)
        try:
            self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        except CudaError:
            return 0
        return value.value

    def text(self, name: str, device: int) -> str:
        """Name or address of a GPU."""
        buffer = ctypes.create_string_buffer(256)
        self.call(name, buffer, 256, device)
        return buffer.value.decode("utf-8", "replace")

    def reaches(self, a: int, b: int) -> bool:
        """Whether peer access from a to b can be had."""
        value = ctypes.c_int(0)
        self.call("cuDeviceCanAccessPeer", ctypes.byref(value), a, b)
        return bool(value.value)


class Gpu:
    """One GPU with its primary context and a stream; current on the thread that made it."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self.device = device
        self.address = cuda.text("cuDeviceGetPCIBusId", device).lower()
        self.context = ctypes.c_void_p()
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.use()
        self.stream = self.new_stream()
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self._events:
            cuda.call("cuEventCreate", ctypes.byref(event), 0)

    def use(self) -> None:
        """Make it current on this thread."""
        self._cuda.call("cuCtxSetCurrent", self.context)

    def new_stream(self) -> Any:
        """A stream that waits for no other."""
        stream = ctypes.c_void_p()
        self._cuda.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def room(self) -> Tuple[int, int]:
        """Free and total bytes of its memory."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        self._cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def memory(self, size: int) -> Any:
        """Memory of the GPU, to be freed with `free`."""
        pointer = ctypes.c_uint64(0)
        self._cuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, *pointers: Any) -> None:
        """Give memory back."""
        for pointer in pointers:
            self._cuda.call("cuMemFree_v2", pointer)

    def pinned(self, size: int) -> Any:
        """Pinned memory of the host, on the NUMA node of the CPU that asks."""
        pointer = ctypes.c_void_p()
        self._cuda.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), 0)
        return pointer

    def unpin(self, pointer: Any) -> None:
        """Give pinned memory back."""
        self._cuda.call("cuMemFreeHost", pointer)

    def wait(self, stream: Any = None) -> None:
        """Wait until a stream has done its work."""
        self._cuda.call("cuStreamSynchronize", stream or self.stream)

    def timed(self, work: Callable[[], None]) -> float:
        """Seconds of `work` on the stream, by the GPU's own clock."""
        begin, end = self._events
        self.wait()
        self._cuda.call("cuEventRecord", begin, self.stream)
        work()
        self._cuda.call("cuEventRecord", end, self.stream)
        self._cuda.call("cuEventSynchronize", end)
        took = ctypes.c_float(0)
        self._cuda.call("cuEventElapsedTime", ctypes.byref(took), begin, end)
        return max(1e-9, took.value / 1e3)

    def rates(self, amount: float, work: Callable[[], None]) -> List[float]:
        """`amount` a second, three times, after one for warmth."""
        work()
        return [amount / self.timed(work) for _ in range(measure_words.RUNS)]

    def down(self, to: Any, source: Any, size: int, stream: Any = None) -> None:
        """Copy from host to GPU."""
        amount = ctypes.c_size_t(size)
        self._cuda.call("cuMemcpyHtoDAsync_v2", to, source, amount, stream or self.stream)

    def up(self, to: Any, source: Any, size: int, stream: Any = None) -> None:
        """Copy from GPU to host."""
        amount = ctypes.c_size_t(size)
        self._cuda.call("cuMemcpyDtoHAsync_v2", to, source, amount, stream or self.stream)

    def within(self, to: Any, source: Any, size: int) -> None:
        """Copy within its memory."""
        self._cuda.call("cuMemcpyDtoDAsync_v2", to, source, ctypes.c_size_t(size), self.stream)

    def fill(self, to: Any, size: int, stream: Any) -> None:
        """Fill memory: a kernel, where copies leave the processors idle."""
        self._cuda.call("cuMemsetD32Async", to, 0, ctypes.c_size_t(size // 4), stream)

    def across(self, to: Any, there: "Gpu", source: Any, size: int) -> None:
        """Copy to another GPU: straight where peer access is on, else through the host."""
        self._cuda.call(
            "cuMemcpyPeerAsync", to, there.context, source, self.context,
            ctypes.c_size_t(size), self.stream,
        )  # fmt: skip

    def peer(self, there: "Gpu", *, on: bool) -> None:
        """Switch this process's peer access to another GPU."""
        self.use()
        if on:
            self._cuda.call("cuCtxEnablePeerAccess", there.context, 0)
        else:
            self._cuda.call("cuCtxDisablePeerAccess", there.context)
