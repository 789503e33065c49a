"""Processes that meet over TCP as torch's do, and reduce in no time at all but by the clock."""

import socket
import time

import torch

_state = {}


def init_process_group(backend, init_method, rank, world_size, timeout):
    """Everybody calls the first, as with torch's store."""
    if rank in torch.world().get("dead_ranks", ()):
        raise RuntimeError("NCCL error: unhandled cuda error")
    host, port = init_method.replace("tcp://", "").split(":")
    until = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        listener = socket.create_server((host, int(port)))
        listener.settimeout(min(10.0, timeout.total_seconds()))
        _state["peers"] = [listener.accept()[0] for _ in range(world_size - 1)]
        for peer in _state["peers"]:
            peer.sendall(b"go")
    else:
        while True:
            try:
                peer = socket.create_connection((host, int(port)), 5)
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        peer.settimeout(10)
        if peer.recv(2) != b"go":
            raise RuntimeError("the first process is gone")


def all_reduce(data):
    size = data.count * 2
    torch._Clock.now_s += 12e-6 + size / 300e9


def destroy_process_group():
    pass
