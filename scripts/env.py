"""``make env``: write ``.env`` for docker-compose.yaml, with a new secret for each empty value of ``.env.example``."""

from __future__ import annotations

import base64
import os
import re
import secrets
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def filled(example: str) -> str:
    """Return the text of ``.env.example`` with a random value for each empty variable.

    Values have only letters and digits, because some are parts of URLs. The Fernet key has its own format.
    """
    text = re.sub(r"^(AIRFLOW_FERNET_KEY)=$", lambda name: f"{name[1]}={_fernet_key()}", example, flags=re.MULTILINE)
    text = re.sub(r"^(\w+)=$", lambda name: f"{name[1]}={secrets.token_hex(32)}", text, flags=re.MULTILINE)
    return re.sub(r"\A# Copy to .*?\n\n", "# Written by `make env`. Git ignores it.\n\n", text, flags=re.DOTALL)


def write(folder: Path) -> bool:
    """Write ``.env`` into ``folder``, readable only by this user, unless it exists; return whether it was written."""
    text = filled((folder / ".env.example").read_text())
    try:
        file = os.open(folder / ".env", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(file, "w") as stream:
        stream.write(text)
    return True


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


if __name__ == "__main__":
    print("Wrote .env with new secrets." if write(ROOT) else ".env exists already and was not changed.")
