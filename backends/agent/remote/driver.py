"""The driver as a whole: is it there, does it answer, and how does one come back to it.

Loading NVML and listing GPUs run on a worker, since both can hang. Whatever goes wrong is a state
with words, and is tried again with growing pauses, so that a driver that is installed, reloaded
or mended later is found without a restart.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .gpu import Gpu
from .readings import code_of, text
from .worker import Ticket, Worker

OK = "ok"
MISSING = "missing"
MISMATCH = "mismatch"
STUCK = "stuck"
RELOADING = "reloading"
NO_PERMISSION = "no-permission"
ERROR = "error"

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 15.0


class Listed(NamedTuple):
    """What listing the GPUs gave."""

    version: Optional[str]
    cuda_version: Optional[str]
    nvml_version: Optional[str]
    gpus: List[Gpu]
    entries: List[Dict[str, Any]]
    bad: Dict[str, str]


class Problem(Exception):
    """The driver can't be used: a state and its words."""

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(detail)
        self.state = state
        self.detail = detail


class Keeper:
    """Holds NVML open, and opens it again when it was lost.

    Attributes:
        listed: The GPUs, once the driver answers; None while it does not.
        state: How the driver is, `stuck` left aside (whoever waits for a call knows that).
        retry_at: Monotonic time of the next try while there is no driver.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self.worker = Worker("driver")
        self.listed: Optional[Listed] = None
        self.state = ""
        self.detail = ""
        self.since = time.monotonic()
        self.retry_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._ticket: Optional[Ticket] = None
        self._nvml: Any = None
        self._initialised = False
        self._was_ok = False

    def poll(self, now: float) -> bool:
        """Go on without ever waiting; True where the GPUs were listed anew."""
        ticket = self._ticket
        if ticket is not None:
            if not ticket.done:
                return False
            self._ticket = None
            return self._harvest(ticket, now)
        if self.listed is None and now >= self.retry_at:
            self._ticket = self.worker.submit(self._open)
        return False

    @property
    def opening(self) -> bool:
        """Whether NVML is being opened and the GPUs are being listed right now."""
        return self._ticket is not None

    def wait(self, until: float) -> None:
        """Wait for the listing that runs, if one does."""
        if self._ticket is not None:
            self._ticket.wait(until)

    def lost(self, state: str, detail: str, pause_s: float = 0.0) -> None:
        """The driver went away under us, or its GPUs must be listed anew: let go, and retry.

        To be called only while no call into the driver is outstanding.
        """
        now = time.monotonic()
        self.listed = None
        self.retry_at = now + pause_s
        self._set(state, detail, now)

    def release(self, pause_s: float) -> None:
        """Let go of the driver for a while, so that its module can be unloaded."""
        self.lost(RELOADING, "let go of the driver for %.0f s, as asked" % pause_s, pause_s)
        self.worker.submit(self._shutdown)

    def _set(self, state: str, detail: str, now: float) -> None:
        if (state, detail) != (self.state, self.detail):
            if state != self.state:
                self.since = now
            self.state, self.detail = state, detail

    def _harvest(self, ticket: Ticket, now: float) -> bool:
        error = ticket.error
        if error is None:
            self.listed = ticket.result
            self._pause_s = FIRST_PAUSE_S
            self._was_ok = True
            self._set(OK, "", now)
            return True
        if isinstance(error, Problem):
            state, detail = error.state, error.detail
        else:
            state, detail = ERROR, "%s: %s" % (error.__class__.__name__, str(error)[:300])
        if state == MISSING and self._was_ok:
            state = RELOADING
        self._set(state, detail, now)
        self.retry_at = now + self._pause_s
        self._pause_s = min(LAST_PAUSE_S, self._pause_s * 2)
        return False

    def _call(self, name: str, *arguments: Any) -> Any:
        self.worker.doing = name
        return getattr(self._nvml, name)(*arguments)

    def _shutdown(self) -> None:
        if self._initialised:
            self._initialised = False
            try:
                self._call("nvmlShutdown")
            except Exception:
                pass  # what is gone needs no shutting down

    def _open(self) -> Listed:
        self.worker.doing = "loading pynvml"
        try:
            if self._nvml is None:
                self._nvml = self._load()
        except Exception as error:
            raise Problem(ERROR, "pynvml can't be loaded: %s" % error) from error
        nvml = self._nvml
        self._shutdown()
        try:
            self._init()
        except nvml.NVMLError as error:
            raise self._problem(error) from error
        self._initialised = True
        try:
            return self._list()
        except nvml.NVMLError as error:
            raise self._problem(error) from error

    def _init(self) -> None:
        nvml = self._nvml
        try:
            self._call("nvmlInit")
        except nvml.NVMLError as error:
            # After an upgrade under us, our library is the old one for as long as we live.
            mismatch = code_of(error) == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            if not mismatch or not load_matching_library(nvml):
                raise
            self._call("nvmlInit")

    def _list(self) -> Listed:
        nvml = self._nvml
        version = self._optional("nvmlSystemGetDriverVersion")
        version = text(version) if version is not None else None
        cuda = self._optional("nvmlSystemGetCudaDriverVersion")
        cuda_version = "%d.%d" % (cuda // 1000, cuda % 1000 // 10) if cuda else None
        nvml_version = self._optional("nvmlSystemGetNVMLVersion")
        major = int((re.match(r"\d+", version or "") or ["0"])[0])
        gpus: List[Gpu] = []
        entries: List[Dict[str, Any]] = []
        bad: Dict[str, str] = {}
        for index in range(self._call("nvmlDeviceGetCount")):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", index)
                gpu = Gpu(nvml, handle, index, major)
                gpu.doing = self.worker
                gpu.identify()
            except nvml.NVMLError as error:
                # Listed all the same: one bad GPU must neither vanish nor hide the others.
                gpu = Gpu(nvml, None, index, major)
                gpu.uuid, gpu.name = "unreadable-%d" % index, "GPU %d" % index
                bad[gpu.uuid] = str(error)[:200]
                once: Dict[str, Any] = {}
                absent: Dict[str, str] = {}
            else:
                once, absent = gpu.read_once()
            gpus.append(gpu)
            entries.append(
                {
                    "uuid": gpu.uuid,
                    "index": index,
                    "name": gpu.name,
                    "bus_id": gpu.bus_id,
                    "once": once,
                    "absent": absent,
                }
            )
        return Listed(
            version,
            cuda_version,
            text(nvml_version) if nvml_version is not None else None,
            gpus,
            entries,
            bad,
        )

    def _optional(self, name: str) -> Any:
        try:
            return self._call(name)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _problem(self, error: BaseException) -> Problem:
        nvml = self._nvml
        code = code_of(error)
        words = str(error)[:200]
        kernel = kernel_module_version()
        if code == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            if kernel:
                words = "kernel module %s is loaded, but libnvidia-ml.so.1 is not found" % kernel
            else:
                words = "libnvidia-ml.so.1 is not found and no kernel module is loaded"
            return Problem(MISSING, words)
        if code == nvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return Problem(MISSING, "libnvidia-ml.so.1 is there, the kernel module is not loaded")
        if code == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return Problem(
                MISMATCH,
                "kernel module %s, library %s: reload the module or reboot"
                % (kernel or "unknown", library_version() or "unknown"),
            )
        if code == nvml.NVML_ERROR_NO_PERMISSION:
            return Problem(NO_PERMISSION, "no permission for %s" % (denied_device() or "the GPU"))
        device = denied_device()
        if device:
            return Problem(NO_PERMISSION, "%s (%s can't be opened)" % (words, device))
        return Problem(ERROR, words)


def kernel_module_version() -> Optional[str]:
    """Version of the loaded NVIDIA kernel module; None where there is none."""
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        try:
            with open(path) as file:
                match = re.search(r"\d+\.\d+(?:\.\d+)?", file.read(4096))
        except OSError:
            continue
        if match:
            return match.group()
    return None


def mapped_library(maps: str = "/proc/self/maps") -> Optional[str]:
    """Path of the NVML library that this process mapped last; it may be gone from the disk."""
    try:
        with open(maps) as file:
            found = re.findall(r"(/\S*/libnvidia-ml\.so\.\d+\.\d+[.\d]*)", file.read())
    except OSError:
        return None
    return found[-1] if found else None


def library_version() -> Optional[str]:
    """Version of the NVML library that this process has mapped."""
    path = mapped_library()
    return path.rpartition(".so.")[2] if path else None


def load_matching_library(nvml: Any) -> bool:
    """Give pynvml the library of the kernel module's version, where that lies beside ours.

    The loader of the system would give the old one again, since it knows libraries by name; by its
    full path the new one is another file.
    """
    path, version = mapped_library(), kernel_module_version()
    if path is None or version is None or not hasattr(nvml, "nvmlLib"):
        return False
    wanted = os.path.join(os.path.dirname(path), "libnvidia-ml.so." + version)
    if wanted == path or not os.path.exists(wanted):
        return False
    try:
        nvml.nvmlLib = ctypes.CDLL(wanted)
    except OSError:
        return False
    getattr(nvml, "_nvmlGetFunctionPointer_cache", {}).clear()
    return True


def denied_device() -> Optional[str]:
    """A device file of the driver that may not be opened by us; None where all may be."""
    for path in ["/dev/nvidiactl", *sorted(glob.glob("/dev/nvidia[0-9]*"))]:
        try:
            os.close(os.open(path, os.O_RDWR))
        except PermissionError:
            return path
        except OSError:
            continue
    return None
