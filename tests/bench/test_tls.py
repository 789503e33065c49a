"""Encrypted connections: the same figures, by the loop's clock, and said so."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from backends.bench.endpoint import Unreachable, direct
from backends.bench.process import LocalGenerator
from backends.bench.results import Failure, ReceiveClock
from backends.bench.runner import Run, prepare_run
from tests.bench.conftest import TTFT_S, Scheduled, closed, run_plan, serve


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    with serve(str(path)) as server:
        yield server


async def test_a_run_over_tls(encrypted: Scheduled) -> None:
    endpoint = replace(encrypted.endpoint(), tls=True, verify=False)
    (step,) = (await run_plan(closed(4, 12), endpoint)).steps
    assert (step.succeeded, step.failures) == (12, {})
    assert step.client.clock is ReceiveClock.LOOP
    assert step.ttft_s is not None
    assert step.ttft_s.min >= 0.8 * TTFT_S
    assert step.ledger.usage_output == step.ledger.seen_output == 120
    assert step.connect_s is not None


async def test_a_certificate_that_is_not_trusted_is_a_failure(encrypted: Scheduled) -> None:
    endpoint = replace(encrypted.endpoint(), tls=True)
    with pytest.raises(Unreachable, match="ertificate"):
        await prepare_run(closed(1, 1), endpoint, direct(endpoint))
    lax = direct(replace(endpoint, verify=False))
    prepared = await prepare_run(closed(1, 2), endpoint, lax)
    (step,) = (await Run(prepared, LocalGenerator(), lax).execute()).steps
    assert step.failures == {Failure.TLS: 2}
