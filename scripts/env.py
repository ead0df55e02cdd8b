"""``make env``: write ``.env`` for docker-compose.yaml, with a fresh secret wherever ``.env.example`` has none."""

from __future__ import annotations

import base64
import os
import re
import secrets
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def filled(example: str) -> str:
    """Return the text of ``.env.example`` with a random value for each name that has none: letters and digits, for some
    become parts of URLs; but for the Fernet key, which has a form of its own."""
    text = re.sub(r"^(AIRFLOW_FERNET_KEY)=$", lambda name: f"{name[1]}={_fernet_key()}", example, flags=re.MULTILINE)
    text = re.sub(r"^(\w+)=$", lambda name: f"{name[1]}={secrets.token_hex(32)}", text, flags=re.MULTILINE)
    return re.sub(r"\A# Copy to .*?\n\n", "# Written by `make env`. Git ignores it.\n\n", text, flags=re.DOTALL)


def write(folder: Path) -> bool:
    """Write ``.env`` into ``folder``, for this user alone, unless there is one. Return whether it was written."""
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
    print(".env is written, with fresh secrets." if write(ROOT) else ".env is there already, and stays as it is.")
