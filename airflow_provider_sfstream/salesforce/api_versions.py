"""The API version that is part of Salesforce's addresses, ``/cometd/62.0`` and ``/services/data/v62.0``."""

from __future__ import annotations

import re

from airflow_provider_sfstream.exceptions import ConfigurationError

DEFAULT_API_VERSION = "62.0"
FIRST_API_VERSION = 37
"""The Streaming API has replay IDs and still answers from this one on (Streaming API guide, "Error Codes")."""

_WRITTEN = re.compile(r"v?(\d{2,3})(?:\.0)?", re.IGNORECASE)


def api_version_from(text: str, *, first: int = FIRST_API_VERSION, what: str = "the Streaming API has") -> str:
    """Return the API version written as ``62.0``, ``62`` or ``v62.0`` in the form that addresses have: ``62.0``.

    :param first: the first version that will do.
    :param what: what needs it, for the error: "API version '30.0' is none that" and this.
    :raises ConfigurationError: if it is not one, or below ``first``. Nothing was contacted.
    """
    written = _WRITTEN.fullmatch(text.strip())
    if written is None or int(written[1]) < first:
        raise ConfigurationError(
            f"API version {text!r} is none that {what}: give {first}.0 or above, for example "
            f"{DEFAULT_API_VERSION}. Nothing was contacted."
        )
    return f"{int(written[1])}.0"
