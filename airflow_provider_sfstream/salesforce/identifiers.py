"""Salesforce identifiers, and names of managed event subscriptions.

An identifier has 15 case-sensitive characters, or the same with a three-character checksum.

The first three characters are the key prefix of the object: ``00D`` organization, ``005`` user, ``001`` account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_sfstream.exceptions import ConfigurationError

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


_MANAGED_ID = re.compile(r"18x[A-Za-z0-9]{12}(?:[A-Za-z0-9]{3})?")
_DEVELOPER_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*")
_LONGEST_NAME = 80


@dataclass(frozen=True)
class ManagedSubscription:
    """A ``ManagedEventSubscription`` of an org.

    :param text: 15 or 18 characters that begin with ``18x``: the ID of the record. Else its developer name: at most 80
        letters, digits and underscores, beginning with a letter, no underscore at the end or after another.
    """

    text: str

    def __post_init__(self) -> None:
        text = self.text if isinstance(self.text, str) else ""
        if not _MANAGED_ID.fullmatch(text) and not (_DEVELOPER_NAME.fullmatch(text) and len(text) <= _LONGEST_NAME):
            raise ConfigurationError(
                f"{self.text!r} does not name a managed event subscription. Use its developer name (at most "
                f"{_LONGEST_NAME} letters, digits and single underscores, beginning with a letter) or its ID (15 or 18 "
                "characters beginning with 18x). Nothing was contacted."
            )

    @property
    def subscription_id(self) -> str | None:
        """The ID of the record, if it is named by the ID."""
        return self.text if self.text.startswith("18") else None

    @property
    def developer_name(self) -> str | None:
        """The developer name, if it is named by that."""
        return None if self.text.startswith("18") else self.text

    @property
    def description(self) -> str:
        """The subscription as named at the beginning of a message."""
        return f"managed subscription {self.text}"

    def __str__(self) -> str:
        return self.text
