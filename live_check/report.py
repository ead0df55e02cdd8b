"""Reports for sending to the developers: redacted JSON with a hash of the org ID."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_sfstream import __version__
from live_check.redaction import hashed
from live_check.run import ProbedOrg

FORMAT = 1
SALESFORCES = ("api.pubsub.salesforce.com", "api.deu.pubsub.salesforce.com")


class ReportError(Exception):
    """A file is not a report of a live check."""


def report(
    org: ProbedOrg, organization: Mapping[str, Any] | None, part: str, results: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the report of an org's answers."""
    host, _, port = org.login.endpoint.target.rpartition(":")
    record = organization or {}
    return {
        "format": FORMAT,
        "made": f"{datetime.now(UTC):%Y-%m-%d}",
        "made_with": f"airflow-provider-sfstream {__version__}",
        "part": part,
        "org": {
            "hash": hashed(org.login.org_id),
            "type": record.get("OrganizationType"),
            "is_sandbox": record.get("IsSandbox"),
            "endpoint": f"{host}:{port}" if host in SALESFORCES else "another",
            "api_version": org.login.api_version,
        },
        "results": dict(results),
    }


def write(document: Mapping[str, Any], path: Path, org: ProbedOrg) -> None:
    """Write a report.

    :raises AssertionError: if it contains the token, the org ID or the host, which redaction must remove.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False)
    token = org.login.token
    if any(
        known in text for known in (token.value, token.org_id[:15], token.instance_url, token.user_id or token.value)
    ):
        raise AssertionError("The report contains a secret or the org's identity. It was not written. Report this bug.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def read(path: Path) -> dict[str, Any]:
    """Read a report.

    :raises ReportError: if the file is not a report, or has a newer format.
    """
    try:
        document = json.loads(path.read_text())
        known = document["format"] == FORMAT and isinstance(document["results"], dict)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path} is not a report of a live check ({type(error).__name__})") from None
    if not known:
        raise ReportError(f"{path} has an unknown format")
    return dict(document)
