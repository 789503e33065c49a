"""Configuration space from bytes, and what the rules need of it."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from backends.tuning import pci
from backends.tuning.engine import evaluate
from backends.tuning.facts import Fact, FactsDocument


def image(
    *,
    kind: int = 0,
    devctl: int = 0x2950,
    link: int = 0x0101,
    link_cap: int = 0x0105,
    link_control: int = 0,
    acs: int | None = None,
    rebar: tuple[int, int] | None = None,
    size: int = 4096,
) -> bytes:
    """A configuration space with the capabilities that are asked for."""
    data = bytearray(4096)
    struct.pack_into("<HH", data, 0, 0x10DE, 0x2BB5)
    struct.pack_into("<H", data, 6, 0x10)
    data[8:12] = bytes((0xA1, 0, 2, 3))
    data[0x34] = 0x40
    data[0x40:0x42] = bytes((0x01, 0x60))  # power management, next 0x60
    express = 0x60
    struct.pack_into("<BBH", data, express, 0x10, 0, 2 | kind << 4)
    struct.pack_into("<IHH", data, express + 4, 1, devctl, 0)
    struct.pack_into("<IHH", data, express + 0x0C, link_cap, link_control, link)
    struct.pack_into("<IH", data, express + 0x24, 3 << 16, 1 << 12)
    struct.pack_into("<H", data, express + 0x30, 5 | 0x20)
    at = 0x100
    if acs is not None:
        struct.pack_into("<IHH", data, at, 0x000D | 1 << 16 | 0x134 << 20, 0x5F, acs)
        at = 0x134
    if rebar is not None:
        able, control = rebar
        struct.pack_into("<III", data, at, 0x0015 | 1 << 16, able, control)
    return bytes(data[:size])


def test_registers_of_an_endpoint() -> None:
    fields = pci.decode(image(rebar=(0x3FFFF0, 1 << 5 | 17 << 8)))
    assert fields == {
        "truncated": False,
        "vendor_id": "10de",
        "device_id": "2bb5",
        "class": "0x030200",
        "port_type": "endpoint",
        "mps_max_bytes": 256,
        "mps_bytes": 512,
        "mrrs_bytes": 512,
        "relaxed_ordering": True,
        "ext_tag": True,
        "no_snoop": True,
        "max_speed_gts": 32.0,
        "max_width": 16,
        "speed_gts": 2.5,
        "width": 16,
        "aspm": "Disabled",
        "tag10_completer": True,
        "tag10_requester": True,
        "tag10_enabled": True,
        "autonomous_speed_disabled": True,
        "target_speed_gts": 32.0,
        "rebar_bytes": 128 << 30,
        "rebar_max_bytes": 128 << 30,
    }


def test_acs_flags_by_bit() -> None:
    fields = pci.decode(image(kind=4, acs=0x1D))
    assert fields["port_type"] == "root port"
    assert fields["acs_control"] == (
        "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
    )


def test_sizes_of_max_read_request() -> None:
    sizes = [pci.decode(image(devctl=n << 12))["mrrs_bytes"] for n in range(6)]
    assert sizes == [128, 256, 512, 1024, 2048, 4096]


def test_what_the_kernel_cuts_is_not_guessed() -> None:
    fields = pci.decode(image(size=64))
    assert fields["truncated"] is True
    assert not {"mps_bytes", "width", "acs_control"} & set(fields)


def test_a_device_that_is_gone() -> None:
    assert pci.decode(b"\xff" * 4096) == {"all_ones": True}


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_without_a_crash(data: bytes) -> None:
    fields = pci.decode(data)
    assert fields.get("mrrs_bytes", 128) in (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@given(st.integers(0, 4095), st.integers(0, 255))
def test_no_single_byte_hangs_the_walk(place: int, value: int) -> None:
    data = bytearray(image(acs=0))
    data[place] = value
    pci.decode(bytes(data))


def verdicts(**raw: bytes) -> dict[str, str]:
    facts = [
        Fact(f"/sys/bus/pci/devices/0000:{n.removeprefix('b')}:00.0/config", d.hex(), "config")
        for n, d in raw.items()
    ]
    return {f.check: f.verdict.value for f in evaluate(FactsDocument(facts))}


def test_bytes_are_judged_as_lspci_would_be() -> None:
    found = verdicts(b06=image(devctl=0x2930))
    assert found["pcie.mps"] == "PASS"
    assert found["pcie.mrrs"] == "PASS"
    assert found["pcie.relaxed_ordering"] == "PASS"
    assert found["pcie.tag10"] == "PASS"
    assert found["pcie.aspm"] == "PASS"
    assert found["pcie.link_gen"] == "INCONCLUSIVE"
    assert found["pcie.link_width"] == "PASS"


def test_an_unprivileged_reading_passes_nothing_that_needs_the_registers() -> None:
    found = verdicts(b06=image(size=64))
    for check in ("pcie.mps", "pcie.mrrs", "pcie.relaxed_ordering", "pcie.tag10", "pcie.aspm"):
        assert found[check] == "UNKNOWN"


def test_a_lost_device_fails_the_count() -> None:
    lost = [
        Fact("/sys/bus/pci/devices/0000:06:00.0/class", "0x030200", "t"),
        Fact("/sys/bus/pci/devices/0000:06:00.0/vendor", "0x10de", "t"),
        Fact("/sys/bus/pci/devices/0000:06:00.0/config", "ff" * 64, "t"),
    ]
    found = {f.check: f for f in evaluate(FactsDocument(lost))}
    assert found["gpu.count"].verdict.value == "FAIL"
    assert "gone" in found["gpu.count"].evidence
