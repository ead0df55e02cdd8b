"""One local org for each module of client tests. Its faults, knobs and sessions are reset after each test.

The contract of event sources is tested twice: with an org on this machine and with an org behind a slow network.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.support.behind_network import OrgBehindNetwork
from tests.support.event_sources import EVENT_SOURCES, EventSourceAdapter
from tests.support.left_behind import leak_check
from tests.support.localorg import LocalOrg, reset_org

_numbers = itertools.count()

SECONDS_EACH_WAY = 0.03
BEHIND_NETWORK = (
    "test_every_event_once_in_order",
    "test_revoked_token_causes_one_login_and_loses_no_event",
    "test_closed_subscription_ends_at_the_server",
)
"""Contract tests that ``make test`` also runs behind the network."""
BEHIND_NETWORK_CLASSES = ("TestSilence", "TestCancelling")
"""Classes of contract tests that ``make test-all`` also runs behind the network: their results depend on time."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the contract tests with an org on this machine and with an org behind a slow network."""
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_event_source_"):
        delays = [pytest.param(None, id="direct")]
        in_each_run = metafunc.function.__name__ in BEHIND_NETWORK
        if in_each_run or (metafunc.cls is not None and metafunc.cls.__name__ in BEHIND_NETWORK_CLASSES):
            marks = [] if in_each_run else [pytest.mark.extended]
            delays.append(pytest.param(SECONDS_EACH_WAY, marks=marks, id="behind_network"))
        metafunc.parametrize("seconds_each_way", delays)


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture
def seconds_each_way() -> float | None:
    """Return the delay of the network in each direction, ``None`` without a network."""
    return None


@pytest.fixture
def org(running_org: LocalOrg, seconds_each_way: float | None) -> Iterator[LocalOrg | OrgBehindNetwork]:
    running_org.admin("DELETE", "/requests")  # tests read the whole log many times, so it must be short
    if seconds_each_way is None:
        yield running_org
    else:
        with OrgBehindNetwork.of(running_org) as behind:
            behind.delay(seconds_each_way)
            yield behind
    reset_org(running_org)


@pytest.fixture
def topic(org: LocalOrg) -> str:
    """Create a new, empty topic."""
    return str(org.define(f"Order{next(_numbers)}__e", Amount__c="double", Note__c="string")["name"])


@pytest.fixture(params=EVENT_SOURCES, ids=lambda kind: kind.name)
def source_kind(request: pytest.FixtureRequest) -> type[EventSourceAdapter]:
    """Return each implementation of an event source in turn."""
    kind: type[EventSourceAdapter] = request.param
    return kind


@pytest.fixture
async def open_source(
    org: LocalOrg, source_kind: type[EventSourceAdapter], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Callable[..., EventSourceAdapter]]:
    """Create event sources of the given kind, with options of their clients, and check that they release everything."""
    opened: list[EventSourceAdapter] = []

    def open_source(**options: Any) -> EventSourceAdapter:
        opened.append(source_kind(org, **options))
        return opened[-1]

    with leak_check(org, caplog) as left_behind:
        yield open_source
        for source in opened:
            await source.aclose()
        await left_behind.assert_no_leaks()


@pytest.fixture
def source(open_source: Callable[..., EventSourceAdapter]) -> EventSourceAdapter:
    """Create an event source of the given kind."""
    return open_source()


@pytest.fixture(scope="session")
def other_private_key() -> str:
    """Create an RSA key that no external client app knows."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture(scope="session")
def other_authority(other_private_key: str) -> str:
    """Create the certificate of an authority that signed no certificate of the org, as PEM."""
    key = load_pem_private_key(other_private_key.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "another authority")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.public_key(key.public_key()).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
