"""One local org for each module of client tests; every test leaves its faults, knobs and sessions as it found them.

The contract of the event sources is asked twice: of an org on this machine, and of one behind a slow network.
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
from tests.support.left_behind import watched
from tests.support.localorg import LocalOrg, put_back

_numbers = itertools.count()

SECONDS_EACH_WAY = 0.03
BEHIND_NETWORK = (
    "test_every_event_once_in_order",
    "test_a_revoked_token_costs_one_login_and_no_event",
    "test_a_closed_subscription_ends_at_the_server_too",
)
"""The tests of the contract that ``make test`` has behind the network too. ``make test-all`` has all of them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask the contract of an org on this machine, and of one behind a slow network."""
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_event_source_"):
        marks = [] if metafunc.function.__name__ in BEHIND_NETWORK else [pytest.mark.extended]
        behind = pytest.param(SECONDS_EACH_WAY, marks=marks, id="behind_network")
        metafunc.parametrize("seconds_each_way", [pytest.param(None, id="direct"), behind])


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture
def seconds_each_way() -> float | None:
    """How long the network takes; ``None``: there is none."""
    return None


@pytest.fixture
def org(running_org: LocalOrg, seconds_each_way: float | None) -> Iterator[LocalOrg | OrgBehindNetwork]:
    running_org.admin("DELETE", "/requests")  # tests look at the whole log, many times
    if seconds_each_way is None:
        yield running_org
    else:
        with OrgBehindNetwork.of(running_org) as behind:
            behind.delay(seconds_each_way)
            yield behind
    put_back(running_org)


@pytest.fixture
def topic(org: LocalOrg) -> str:
    """A new, empty topic."""
    return str(org.define(f"Order{next(_numbers)}__e", Amount__c="double", Note__c="string")["name"])


@pytest.fixture(params=EVENT_SOURCES, ids=lambda kind: kind.name)
def source_kind(request: pytest.FixtureRequest) -> type[EventSourceAdapter]:
    """Each implementation of an event source in turn."""
    kind: type[EventSourceAdapter] = request.param
    return kind


@pytest.fixture
async def open_source(
    org: LocalOrg, source_kind: type[EventSourceAdapter], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Callable[..., EventSourceAdapter]]:
    """Make event sources of that kind, with options of their clients. Nothing may be left of them after the test."""
    opened: list[EventSourceAdapter] = []

    def open_source(**options: Any) -> EventSourceAdapter:
        opened.append(source_kind(org, **options))
        return opened[-1]

    with watched(org, caplog) as left_behind:
        yield open_source
        for source in opened:
            await source.aclose()
        await left_behind.nothing()


@pytest.fixture
def source(open_source: Callable[..., EventSourceAdapter]) -> EventSourceAdapter:
    """An event source of that kind."""
    return open_source()


@pytest.fixture(scope="session")
def other_private_key() -> str:
    """An RSA key that no external client app knows."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture(scope="session")
def other_authority(other_private_key: str) -> str:
    """The certificate of an authority that signed nothing here, as PEM."""
    key = load_pem_private_key(other_private_key.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "another authority")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.public_key(key.public_key()).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
