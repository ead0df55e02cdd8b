"""The API version in Salesforce's URLs, ``/cometd/66.0`` and ``/services/data/v66.0``."""

from __future__ import annotations

import re

from airflow_provider_sfstream.exceptions import ConfigurationError

DEFAULT_API_VERSION = "66.0"
FIRST_API_VERSION = 37
"""The first version of the Streaming API with replay IDs that still answers (Streaming API guide, "Error Codes")."""
FIRST_SUPPORTED_API_VERSION = 41
"""The first version without an announced retirement (Salesforce's "API End-of-Life Policy")."""

_VERSION = re.compile(r"v?(\d{2,3})(?:\.0)?", re.IGNORECASE)


def api_version_from(text: str, *, first: int = FIRST_API_VERSION, what: str = "the Streaming API requires") -> str:
    """Return the API version written as ``66.0``, ``66`` or ``v66.0`` in the form of URLs: ``66.0``.

    :param what: subject and verb of the error's sentence "... 37.0 or above", which name the feature.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None or int(match[1]) < first:
        raise ConfigurationError(
            f"API version {text!r} is invalid or too old: {what} {first}.0 or above, for example "
            f"{DEFAULT_API_VERSION}. Nothing was contacted."
        )
    return f"{int(match[1])}.0"


def api_version_retirement(text: str | None) -> str | None:
    """Return the date and remedy of an API version that Salesforce retires; ``None`` for others and invalid ones."""
    match = _VERSION.fullmatch((text or "").strip())
    if match is None or int(match[1]) >= FIRST_SUPPORTED_API_VERSION:
        return None
    return (
        f"The connection has API version {int(match[1])}.0. Salesforce supports 31.0 to 40.0 until Summer '27 and "
        f"retires them in Summer '28. Set version to {DEFAULT_API_VERSION}, or leave it empty."
    )
