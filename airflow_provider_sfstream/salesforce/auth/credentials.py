"""Credentials from a connection's fields: OAuth flow, login host and secrets.

This module validates all fields before any network access. Neither reprs nor errors show a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import quoted_setting, remember_secrets
from airflow_provider_sfstream.salesforce.network.tls import checked_origin

DEFAULT_LOGIN_URL = "https://login.salesforce.com"
SANDBOX_LOGIN_URL = "https://test.salesforce.com"

Fields = Mapping[str, str | None]


@dataclass(frozen=True)
class Credentials:
    """Login flow of a connection, with the fields that the flow uses. Once an instance exists, no error shows its
    secrets.

    :param flow: a key of :data:`_FLOWS`.
    :param login_url: scheme and host to log in at; of the flow ``access_token``, those of the org.
    :param password: with the security token at its end.
    """

    flow: str
    login_url: str
    consumer_key: str = ""
    username: str = ""
    consumer_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.remember()

    def remember(self) -> None:
        """Register the secrets for redaction, as the most recently used ones."""
        remember_secrets(*(getattr(self, name) for name in _SECRETS))

    @property
    def audience(self) -> str:
        """The JWT's ``aud``: Salesforce's login or test host; the login URL itself if it belongs to neither."""
        host = urlsplit(self.login_url).hostname or ""
        if not host.endswith(".salesforce.com"):
            return self.login_url
        sandbox = host.startswith("test.") or ".sandbox." in host or "--" in host
        return SANDBOX_LOGIN_URL if sandbox else DEFAULT_LOGIN_URL


LOGIN_RETIREMENT = (
    "The connection logs in with a username and password. Salesforce retires this login in 2027, by one source with "
    "Winter '27, by another on February 20. Move the connection to client credentials (consumer_key, consumer_secret, "
    "domain) or to a JWT."
)

_SECRETS = ("consumer_secret", "private_key", "refresh_token", "password", "access_token")


def credentials_from(fields: Fields, *, allow_insecure: bool = False) -> Credentials:
    """Return the credentials in a connection's ``fields``.

    The flow is ``auth_flow`` if set. Otherwise it follows from which selecting field of :data:`_FLOWS` is set; two of
    them are contradictory. If none is set, the flow is client credentials.
    """
    remember_secrets(*map(fields.get, _SECRETS), fields.get("security_token"))
    flow = fields.get("auth_flow") or _inferred_flow(fields)
    if flow not in _FLOWS:
        raise ConfigurationError(
            f"auth_flow {quoted_setting(flow)} is invalid. Use one of {', '.join(_FLOWS)}, or leave it empty."
        )
    required, optional, _ = _FLOWS[flow]
    missing = [name for name in required if not fields.get(name)]
    if flow == "jwt_bearer" and not (fields.get("private_key") or fields.get("private_key_file_path")):
        missing.append("private_key (or private_key_file_path)")
    if missing:
        raise ConfigurationError(
            f"The Salesforce connection lacks {', '.join(missing)} for the login flow {flow!r}. Set them, or "
            "select another flow with auth_flow. Nothing was contacted."
        )
    if flow == "access_token":
        instance_url = checked_origin("instance_url", fields.get("instance_url") or "", allow_insecure=allow_insecure)
        return Credentials(flow, instance_url, access_token=fields.get("access_token") or "")
    login_url = checked_origin("login_url", login_url_from(fields), allow_insecure=allow_insecure)
    if flow == "client_credentials" and login_url in (DEFAULT_LOGIN_URL, SANDBOX_LOGIN_URL):
        raise ConfigurationError(
            "The login flow 'client_credentials' works on the org's My Domain host only, not on "
            f"{login_url}. Set domain (for example 'mycompany.my') or login_url. Nothing was contacted."
        )
    used = {name: fields.get(name) or "" for name in (*required, *optional)}
    return Credentials(
        flow,
        login_url,
        used["consumer_key"],
        username=used.get("login", ""),
        consumer_secret=used.get("consumer_secret", ""),
        private_key=_private_key(fields) if flow == "jwt_bearer" else "",
        refresh_token=used.get("refresh_token", ""),
        password=used.get("password", "") + used.get("security_token", ""),
    )


_FLOWS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    # a token from another source, which cannot be renewed
    "access_token": (("access_token", "instance_url"), (), "access_token"),
    # from an earlier interactive login of a user
    "refresh_token": (("refresh_token", "consumer_key"), ("consumer_secret",), "refresh_token"),
    # a signed assertion for a user who has pre-authorized the external client app
    "jwt_bearer": (("consumer_key", "login"), (), "private_key"),
    # Salesforce blocks it in new orgs, and is retiring it
    "password": (("login", "password", "consumer_key", "consumer_secret"), ("security_token",), "password"),
    # the external client app logs in as its own Run-As user
    "client_credentials": (("consumer_key", "consumer_secret"), (), ""),
}
"""OAuth flows: required and optional fields, and the field whose presence selects the flow."""


def _inferred_flow(fields: Fields) -> str:
    present = {**fields, "private_key": fields.get("private_key") or fields.get("private_key_file_path")}
    flows = [flow for flow, (_, _, selector) in _FLOWS.items() if selector and present.get(selector)]
    if len(flows) > 1:
        raise ConfigurationError(
            f"The Salesforce connection has fields of several login flows ({', '.join(flows)}). Select one with "
            "auth_flow, or remove the fields of the other flows. Nothing was contacted."
        )
    return flows[0] if flows else "client_credentials"


def login_url_from(fields: Fields) -> str:
    """Return the login URL: ``login_url``, else ``domain``, else ``instance_url``, else ``instance``, else
    ``https://login.salesforce.com``. A bare label like ``test`` or ``mycompany.my`` stands for
    ``https://{label}.salesforce.com``, as in Airflow's Salesforce provider.
    """
    for name in ("login_url", "domain", "instance_url", "instance"):
        setting = (fields.get(name) or "").strip()
        value = setting.rstrip("/")
        if not value:
            continue
        if "://" in setting:
            return value
        bare_host = name == "login_url" or value.endswith(".com") or ":" in value
        return f"https://{value}" if bare_host else f"https://{value}.salesforce.com"
    return DEFAULT_LOGIN_URL


def _private_key(fields: Fields) -> str:
    """Return the PEM text of the RSA key, from the field or the file."""
    pem, path = fields.get("private_key"), fields.get("private_key_file_path")
    if pem and path:
        raise ConfigurationError(
            "Both private_key and private_key_file_path are set. Set only one. Nothing was contacted."
        )
    if path:
        try:
            pem = Path(path).expanduser().read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"private_key_file_path {quoted_setting(path)} cannot be read ({type(error).__name__}). It must be the "
                "path of a file on the worker of the task; PEM text belongs in private_key. Nothing was contacted."
            ) from None  # the cause quotes the field, which may be the key itself
    # A key on one line, as in a JSON text or an environment variable, has "\n" in place of its line breaks.
    text = (pem or "").replace("\\n", "\n").strip() + "\n"
    try:
        key = load_pem_private_key(text.encode("ascii"), password=None)
    except (ValueError, TypeError) as error:
        # The cause could quote the key.
        raise ConfigurationError(
            f"private_key is not a readable PEM key without a passphrase ({type(error).__name__}). "
            "Nothing was contacted."
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigurationError("private_key must be an RSA key: Salesforce accepts RS256. Nothing was contacted.")
    return text
