"""Salesforce identifiers: 15 case-sensitive characters, or the same with a three-character checksum.

The first three characters are the key prefix of the object: ``00D`` organization, ``005`` user, ``001`` account.
"""

from __future__ import annotations

import re

_CHECKSUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"


def to_18(identifier: str) -> str:
    """Return the 18-character form of an identifier of 15 or 18 characters.

    Each checksum character encodes which of five characters are upper case (Salesforce's published algorithm).
    """
    if not re.fullmatch(r"[0-9A-Za-z]{15}(?:[0-9A-Za-z]{3})?", identifier):
        raise ValueError(f"{identifier!r} is not a Salesforce identifier of 15 or 18 letters and digits")
    first = identifier[:15]
    chunks = (first[start : start + 5] for start in (0, 5, 10))
    return first + "".join(_CHECKSUM[sum(1 << i for i, c in enumerate(chunk) if "A" <= c <= "Z")] for chunk in chunks)
