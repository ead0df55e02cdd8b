"""The identifiers that the org gives to its objects."""

from __future__ import annotations

import hashlib

from airflow_provider_sfstream.protocol.identifiers import to_18

__all__ = ["derived", "numbered", "to_18"]

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def numbered(prefix: str, number: int) -> str:
    """Return the 18-character identifier of object ``number`` below a three-character key prefix."""
    digits = ""
    while number:
        number, digit = divmod(number, 62)
        digits = _DIGITS[digit] + digits
    return to_18(f"{prefix}{digits:0>12}")


def derived(prefix: str, text: str) -> str:
    """Return an 18-character identifier that is always the same for the same ``text``."""
    return numbered(prefix, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))
