"""Identity of the local org: its ids and credentials, created once and stored in the data directory."""

from __future__ import annotations

import json
import os
import secrets
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from sfstream_localorg.identifiers import to_18

_LETTERS = string.ascii_letters + string.digits

CONSUMER_SECRET = "SFSTREAM_LOCALORG_CONSUMER_SECRET"  # noqa: S105 - its name
"""Environment variable with the external client app's secret, in place of the generated secret."""


@dataclass(frozen=True)
class Identity:
    """Ids and credentials of an org, its only user and its only external client app. The repr omits secrets."""

    org_id: str
    username: str
    client_id: str
    client_secret: str = field(repr=False)
    password: str = field(repr=False)
    security_token: str = field(repr=False)


_FILE = "identity.json"


def created_at(data_dir: Path) -> float:
    """Return the creation time of the org in a data directory, in seconds since the epoch."""
    return (data_dir / _FILE).stat().st_mtime


def load_or_create(data_dir: Path, environment: Mapping[str, str] = os.environ) -> Identity:
    """Return the identity in ``data_dir/identity.json`` (readable by its owner only); create it at the first start.

    :param environment: ``SFSTREAM_LOCALORG_CONSUMER_KEY`` and ``SFSTREAM_LOCALORG_CONSUMER_SECRET`` replace the stored
        key and secret of the external client app.
    :raises ValueError: if the file has another content than this function writes.
    """
    identity = _read_or_create(data_dir)
    return replace(
        identity,
        client_id=environment.get("SFSTREAM_LOCALORG_CONSUMER_KEY") or identity.client_id,
        client_secret=environment.get(CONSUMER_SECRET) or identity.client_secret,
    )


def _read_or_create(data_dir: Path) -> Identity:
    path = data_dir / _FILE
    if path.exists():
        try:
            return Identity(**json.loads(path.read_text()))
        except TypeError as error:
            raise ValueError(f"{path} is not the identity of a local org: delete it to get a new one") from error
    identity = Identity(
        org_id=to_18("00D" + _random(12)),
        username="integration@localorg.example",
        client_id="3MVG9" + _random(80),
        client_secret=secrets.token_hex(32).upper(),
        password=_random(16),
        security_token=_random(24),
    )
    temporary = path.with_suffix(".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(identity), file, indent=1)
    temporary.replace(path)
    return identity


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
