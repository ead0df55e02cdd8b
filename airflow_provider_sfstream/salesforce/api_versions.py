"""The API version in Salesforce's URLs, ``/cometd/62.0`` and ``/services/data/v62.0``."""

from __future__ import annotations

import re

from airflow_provider_sfstream.exceptions import ConfigurationError

DEFAULT_API_VERSION = "62.0"
FIRST_API_VERSION = 37
"""The first version of the Streaming API with replay IDs that still answers (Streaming API guide, "Error Codes")."""

_VERSION = re.compile(r"v?(\d{2,3})(?:\.0)?", re.IGNORECASE)


def api_version_from(text: str, *, first: int = FIRST_API_VERSION, what: str = "the Streaming API requires") -> str:
    """Return the API version written as ``62.0``, ``62`` or ``v62.0`` in the form of URLs: ``62.0``.

    :param what: subject and verb of the error's sentence "... 37.0 or above", which name the feature.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None or int(match[1]) < first:
        raise ConfigurationError(
            f"API version {text!r} is invalid or too old: {what} {first}.0 or above, for example "
            f"{DEFAULT_API_VERSION}. Nothing was contacted."
        )
    return f"{int(match[1])}.0"
