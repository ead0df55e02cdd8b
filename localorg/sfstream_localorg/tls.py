"""TLS files of the local org: its certificate authority and server certificate; and the JWT bearer key pair."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files in the data directory. Clients trust ``ca``; the servers use ``certificate`` and ``key``."""

    ca: Path
    certificate: Path
    key: Path


def ensure_tls_files(data_dir: Path, host_name: str | None = None) -> TlsFiles:
    """Return the TLS files of ``data_dir``; create them at the first start.

    The server certificate names ``localhost``, ``127.0.0.1`` and ``::1``. The authority's key is not stored.

    :param host_name: an additional name or address in the certificate. If it is missing there, both the authority and
        the certificate are created again.
    """
    files = TlsFiles(data_dir / "ca.pem", data_dir / "server.pem", data_dir / "server.key")
    names = [_general_name(name) for name in dict.fromkeys(("localhost", "127.0.0.1", "::1", host_name)) if name]
    if all(path.exists() for path in (files.ca, files.certificate, files.key)) and _has_names(files.certificate, names):
        return files
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("Local Salesforce org CA")
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        _certificate(_name("localhost"), ca_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _write(files.key, _private_pem(server_key), secret=True)
    _write(files.certificate, server.public_bytes(serialization.Encoding.PEM))
    _write(files.ca, ca.public_bytes(serialization.Encoding.PEM))
    return files


def ensure_jwt_keys(data_dir: Path) -> Path:
    """Return the path of the private key of JWT bearer clients; create it and ``jwt_public.pem`` at the first start."""
    private, public = data_dir / "jwt_private.pem", data_dir / "jwt_public.pem"
    if not (private.exists() and public.exists()):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write(private, _private_pem(key), secret=True)
        _write(
            public,
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        )
    return private


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _has_names(certificate: Path, names: list[x509.GeneralName]) -> bool:
    extensions = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
    return set(names) <= set(extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644), "wb") as file:
        file.write(content)
