"""Salesforce identifiers: 15 case-sensitive characters, or the same with a three-character checksum.

The first three characters are the key prefix of the object: ``00D`` organization, ``005`` user, ``001`` account.
"""

from __future__ import annotations

import hashlib
import re

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECKSUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"


def to_18(identifier: str) -> str:
    """Return the 18-character form of an identifier given in either form.

    Each checksum character says which of five characters are upper case (Salesforce's published algorithm).

    :raises ValueError: if ``identifier`` is neither 15 nor 18 letters and digits.
    """
    if not re.fullmatch(r"[0-9A-Za-z]{15}(?:[0-9A-Za-z]{3})?", identifier):
        raise ValueError(f"{identifier!r} is not a Salesforce identifier of 15 or 18 letters and digits")
    first = identifier[:15]
    chunks = (first[start : start + 5] for start in (0, 5, 10))
    return first + "".join(_CHECKSUM[sum(1 << i for i, c in enumerate(chunk) if "A" <= c <= "Z")] for chunk in chunks)


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
