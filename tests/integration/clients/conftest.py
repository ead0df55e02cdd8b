"""One local org for all client tests; every test leaves its faults, knobs and sessions as it found them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.support.localorg import LocalOrg

_numbers = itertools.count()


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    yield running_org
    running_org.clear_faults()
    running_org.reset_knobs()
    running_org.admin("POST", "/oauth", {"fail_next": 0, "fail_error": None, "empty_next": 0, "login_host": False})


@pytest.fixture
def topic(org: LocalOrg) -> str:
    """A new, empty topic."""
    return str(org.define(f"Order{next(_numbers)}__e", Amount__c="double", Note__c="string")["name"])


@pytest.fixture(scope="session")
def other_private_key() -> str:
    """An RSA key that no connected app knows."""
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
