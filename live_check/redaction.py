"""Redaction of reports: placeholders replace texts that identify the org, its host or the user.

The placeholders are the same for every org, so that the answers of two orgs can be compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_sfstream.redaction import redacted

PATTERNS = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "{uuid}"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "{user}"),
    (re.compile(r"https?://[^\s/\"'<>]+"), "https://{host}"),
    (re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.(?:salesforce|force|salesforce-setup|cloudforce)\.(?:com|mil)\b"), "{host}"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "{host}"),
    (re.compile(r"\b00D[A-Za-z0-9]{12}(?:[A-Za-z0-9]{3})?\b", re.IGNORECASE), "{org}"),
    (re.compile(r"\b(?:00[0-9A-Z]|18x|0[A-Z][A-Za-z])[A-Za-z0-9]{12}(?:[A-Z0-5]{3})?\b"), "{id}"),
    (re.compile(r"\{\d+\}"), "{replay_id}"),
    (re.compile(r"\bClient [0-9a-z]{20,}"), "Client {client}"),
    (re.compile(r"Airflow_Live_Check_[0-9a-f]+"), "Airflow_Live_Check_{random}"),
)


def hashed(org_id: str) -> str:
    """Return the hash that identifies an org in reports. It is the same in all reports of an org."""
    return hashlib.sha256(f"sfstream live check {org_id[:15]}".encode()).hexdigest()[:16]


class Redactor:
    """Redactor of the texts of one login, and of texts in the format of IDs, hosts and users.

    :param known: texts to replace, by placeholder. If one text contains another, the longer text comes first.
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        pairs = [(text, f"{{{name}}}") for name, text in known.items() if len(text) > 3]
        self._known = sorted(pairs, key=lambda pair: -len(pair[0]))

    def __call__(self, value: Any) -> Any:
        """Return ``value`` (JSON) with every text redacted, keys too."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self._text(str(key)): self(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self(each) for each in value]
        return value

    def _text(self, text: str) -> str:
        text = redacted(text)
        for known, placeholder in self._known:
            text = re.sub(re.escape(known), placeholder, text, flags=re.IGNORECASE)
        for pattern, placeholder in PATTERNS:
            text = pattern.sub(placeholder, text)
        return text
