"""Network: RDMA ports, MTU, quality of service, sockets, interfaces, the engine's port."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning.fixes import Fix, Target, commands, manual, sysctl
from backends.tuning.pci_devices import Role
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    inconclusive,
    info,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.devices import (
    devices,
    link_of,
)
from backends.tuning.rules.pcie import ordering_fix

IB: Final = "/sys/class/infiniband"
ISOLATED: Final = re.compile(r"^(?:docker|virbr|br-|veth|lxcbr|cni|flannel|podman|vmbr\d+v)")


@rule("net.ib_port", rdma=True)
def ib_port(scene: Scene) -> Judgements:
    view = scene.view
    for reading in view.each(f"{IB}/*/ports/*/state"):
        card, port = reading.names
        base = f"{IB}/{card}/ports/{port}"
        label = f"{card}/{port}"
        state = (reading.text or "").rpartition(":")[2].strip()
        phys = (view.text(f"{base}/phys_state") or "").rpartition(":")[2].strip()
        rate = view.text(f"{base}/rate")
        downed = view.integer(f"net/link_downed_delta/{card}/{port}")
        expected = scene.expected.get("net.ib_port")
        told = f"{state}, {phys}, {rate or 'rate not read'}"
        if not state or not phys or rate is None:
            yield unknown("state, physical state or rate not read", label)
        elif state != "ACTIVE" or phys != "LinkUp":
            if phys in ("Disabled", "Polling"):
                yield info(f"{told}: not cabled, or the other end is off", label)
            else:
                yield failed(told, label, fix=manual("check cable, switch and subnet manager"))
        elif downed:
            yield warned(f"{told}; went down {downed} times", label)
        elif expected and not rate.startswith(expected):
            yield failed(f"{told}; expected {expected}", label)
        elif re.match(r"\d+(?:\.\d+)? Gb/sec", rate):
            yield passed(told, label)
        else:
            yield unknown(told, label)


@rule("net.mtu")
def mtu(scene: Scene) -> Judgements:
    view = scene.view
    peers = view.items("net/peers")
    if peers is None:
        return
    if not peers:
        yield not_applicable("a single node")
        return
    roce = {r.names[0] for r in view.each(f"{IB}/*/ports/*/link_layer") if r.text == "Ethernet"}
    for reading in view.each("net/peer_mtu/*/*"):
        name, peer = reading.names
        own = view.integer(f"/sys/class/net/{name}/mtu", 68, 65536)
        probe = view.flag(f"net/mtu_probe/{name}/{peer}")
        other = reading.integer
        label = f"{name}-{peer}"
        if peer not in peers:
            yield unknown("it is not among the peers that were named", label)
        elif own is None or other is None or other < 68:
            yield unknown("one of the two was not read", label)
        elif own != other or probe is False:
            yield failed(
                f"{own} here, {other} at {peer}"
                + ("" if probe is not False else "; full packets do not pass"),
                label,
                fix=commands(
                    ("ip", "link", "set", "dev", name, "mtu", str(other)),
                    summary=f"MTU of {name} to {other}",
                    undo_argvs=(("ip", "link", "set", "dev", name, "mtu", str(own)),),
                ),
            )
        elif roce and own <= 1500:
            yield warned(f"{own} on RoCE", label, fix=manual("9000 on every peer and switch"))
        elif probe is None:
            yield inconclusive(f"{own} on both ends", label, hint="ping -M do with full packets")
        else:
            yield passed(f"{own} on both ends, full packets pass", label)


@rule("net.roce_qos", rdma=True)
def roce_qos(scene: Scene) -> Judgements:
    view = scene.view
    layers = view.each(f"{IB}/*/ports/*/link_layer")
    if layers and all(r.text == "InfiniBand" for r in layers):
        yield not_applicable("InfiniBand, no RoCE")
        return
    for reading in view.each("net/qos/*/trust"):
        name = reading.name
        priority0 = view.integer(f"net/qos/{name}/prio0_bytes_delta")
        lossless = view.integer(f"net/qos/{name}/lossless_bytes_delta")
        unit = view.flag(f"net/qos/{name}/reapplied_at_boot")
        if reading.text not in ("dscp", "pcp") or priority0 is None or lossless is None:
            yield unknown("trust mode or counters not read", name)
        elif priority0 and not lossless:
            yield warned(
                "all traffic on priority 0",
                name,
                fix=manual("mlnx_qos --trust dscp --pfc ..., in a unit of its own"),
            )
        elif unit is False:
            yield warned(
                "set now, and lost at the next boot", name, fix=manual("a unit that sets it again")
            )
        elif unit is None:
            yield unknown("whether it is set again at boot was not read", name)
        elif lossless:
            yield passed(f"traffic on the lossless priority, trust {reading.text}", name)
        else:
            yield inconclusive("no traffic while it was watched", name, hint="read under load")


@rule("net.somaxconn")
def somaxconn(scene: Scene) -> Judgements:
    view = scene.view
    value = view.integer("/proc/sys/net/core/somaxconn", 1, 1 << 31)
    overflows = view.integer("net/listen_overflows_delta")
    fix = sysctl("net.core.somaxconn", "4096")
    if value is None:
        return
    if overflows:
        yield warned(f"{overflows} connections dropped, backlog {value}", fix=fix)
    elif value >= scene.profile["net_somaxconn"]:
        yield passed(f"net.core.somaxconn = {value}")
    else:
        yield info(f"net.core.somaxconn = {value}", fix=fix)


@rule("net.buffers")
def buffers(scene: Scene) -> Judgements:
    view = scene.view
    value = view.integer("/proc/sys/net/core/rmem_max", 1, 1 << 40)
    peers = view.items("net/peers")
    if value is None:
        return
    if peers is not None and not peers:
        yield not_applicable("a single node")
    elif scene.context.rdma:
        yield not_applicable("RDMA carries the traffic")
    elif peers and value < scene.profile["net_rmem_mib"] * (1 << 20):
        yield warned(
            f"net.core.rmem_max = {value} for several nodes over TCP",
            fix=sysctl("net.core.rmem_max", "67108864"),
        )
    elif peers and scene.context.rdma is False:
        yield passed(f"net.core.rmem_max = {value}")
    else:
        yield info(f"net.core.rmem_max = {value}")


DISTANCES: Final = ("PIX", "PXB", "PHB", "NODE")
"""How near a card is, in nvidia-smi's words, the nearest first."""


@rule("net.nic_pcie", rdma=True)
def nic_pcie(scene: Scene) -> Judgements:
    view = scene.view
    for device in devices(scene).values():
        if device.role is not Role.NIC:
            continue
        link = link_of(scene, device.bdf)
        size = view.integer(device.key("mrrs_bytes"), 128, 4096)
        ordering = view.flag(device.key("relaxed_ordering"))
        if view.flag(device.key("truncated")):
            yield unknown("the configuration space is cut to 64 bytes", device.label)
        elif None in (link.width, link.max_width, link.generation, link.max_generation) or (
            size is None or ordering is None
        ):
            if link.width is not None or size is not None:
                yield unknown("not read in full", device.label)
        elif (link.width or 0) < (link.max_width or 0):
            yield failed(
                f"x{link.width} of x{link.max_width}",
                device.label,
                fix=manual("reseat the card; check riser, slot and bifurcation", reboot=True),
            )
        elif (link.generation or 0) < (link.max_generation or 0):
            yield warned(
                f"Gen{link.generation} of Gen{link.max_generation}",
                device.label,
                fix=manual("check slot and link speed in firmware, then reseat", reboot=True),
            )
        elif not ordering:
            yield warned("relaxed ordering is off", device.label, fix=ordering_fix(device))
        elif size < 4096:
            yield info(f"MaxReadReq {size}; NVIDIA sets 4096 on network cards", device.label)
        else:
            yield passed(f"x{link.width} Gen{link.generation}, MaxReadReq {size}", device.label)
    told: set[str] = set()
    for reading in view.each("topo/link/*/*"):
        row, column = reading.names
        if not row.isdecimal() or not re.match(r"NIC\d+|mlx5", column):
            continue
        best = {r.text for r in view.peek_each(f"topo/link/{row}/*") if not r.names[0].isdecimal()}
        if best and best <= {"SYS"}:
            yield warned("every network card lies across the socket link", f"GPU{row}")
            return
        near = sorted(best & {"PIX", "PXB", "PHB", "NODE"}, key=DISTANCES.index)
        if near and f"GPU{row}" not in told:
            told.add(f"GPU{row}")
            yield unknown(
                f"its nearest network card is {near[0]} away; width and MaxReadReq were not read",
                f"GPU{row}",
                hint="lspci -vvv as root",
            )


@rule("net.ifname")
def ifname(scene: Scene) -> Judgements:
    view = scene.view
    up = view.items("net/interfaces_up")
    chosen = view.text("env/NCCL_SOCKET_IFNAME")
    peers = view.items("net/peers")
    if up is None:
        return
    names = [name.strip() for name in up]
    candidates = [n for n in names if n != "lo" and re.fullmatch(r"[\w.@:-]{1,32}", n)]
    if len(candidates) < len([n for n in names if n != "lo"]):
        yield unknown("interface names not understood")
    elif chosen:
        yield (
            passed(f"NCCL_SOCKET_IFNAME={chosen[:40]}")
            if any(n.startswith(chosen.lstrip("=^").split(",")[0]) for n in candidates)
            else failed(f"NCCL_SOCKET_IFNAME={chosen[:40]}, and no such interface is up")
        )
    elif peers is not None and not peers:
        yield info(f"a single node; up: {', '.join(candidates[:6])}")
    elif candidates and ISOLATED.match(candidates[0]):
        yield warned(
            f"the first interface is {candidates[0]}: NCCL may try it and hang",
            fix=manual("set NCCL_SOCKET_IFNAME in the engine's unit", target=Target.GUEST),
        )
    elif len(candidates) == 1:
        yield passed(f"{candidates[0]} alone is up")
    elif candidates:
        yield info(f"up: {', '.join(candidates[:6])}")


@rule("net.server_port")
def server_port(scene: Scene) -> Judgements:
    view = scene.view
    port = view.integer("engine/port", 1, 65535)
    listening = view.items("net/listening")
    if port is None:
        if view.flag("engine/none"):
            yield not_applicable("no engine is meant to run")
        return
    if listening is None:
        yield unknown("open ports were not read")
        return
    bound = [entry for entry in listening if re.search(rf":{port}$", entry.strip())]
    protected = view.flag("engine/auth") or view.flag("net/firewall_closed")
    wide = [b for b in bound if re.match(r"(?:0\.0\.0\.0|\*|\[?::\]?):", b.strip())]
    if not bound:
        yield failed(f"nobody listens on port {port}", fix=_bind())
    elif wide and not protected:
        yield warned(f"port {port} is open to every network, without a key", fix=_bind())
    elif wide:
        yield passed(f"port {port} on every address, behind a key or firewall")
    elif all(_address(b) for b in bound):
        yield passed(f"port {port} on {bound[0].strip().rpartition(':')[0]}")
    else:
        yield unknown(f"address not understood: {bound[0][:40]!r}")


def _address(entry: str) -> bool:
    host = entry.strip().rpartition(":")[0].strip("[]").partition("%")[0]
    return bool(re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]{2,39}", host))


def _bind() -> Fix:
    return manual("bind to one address, or put a key or a firewall before it")


RULES = collect(globals())
