"""Client of the REST API for the org's remaining allocations."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches

from airflow_provider_sfstream.exceptions import AllocationUnknownError
from airflow_provider_sfstream.salesforce.allocations import DELIVERY_METRICS, Allocation, allocations_from, usage_query
from airflow_provider_sfstream.salesforce.rest.client import RestClient

_WHAT = "the org's allocations"


class AllocationClient(RestClient):
    """Reader of remaining allocations; each read is one API request.

    The user needs the permission "View Setup and Configuration".
    """

    needs_version = "allocations require"

    def all(self) -> dict[str, Allocation]:
        """Return every allocation with a maximum above 0, by name. Salesforce updates the numbers with a small
        delay."""
        return allocations_from(self.request("GET", "limits", what=_WHAT))

    def get(self, *names: str) -> list[Allocation]:
        """Return the allocations of these names, from one response."""
        allocations = self.all()
        for name in names:
            if name not in allocations:
                raise AllocationUnknownError(_missing(name, allocations))
        return [allocations[name] for name in names]

    def delivered(self, now: datetime) -> dict[str, int]:
        """Return the numbers of events delivered to all clients in the 24 hours up to the last full hour, by kind.
        Sends two requests.

        The numbers show the use of an allocation. Only ``/limits``, which counts differently, reports how much remains.
        Kinds without a number are not in the result, and not every edition has ``PlatformEventUsageMetric``.
        """
        counts = {kind: self._metric(metric, now) for kind, metric in DELIVERY_METRICS.items()}
        return {kind: count for kind, count in counts.items() if count is not None}

    def _metric(self, metric: str, now: datetime) -> int | None:
        what = f"the metric {metric} of PlatformEventUsageMetric"
        answer = self.request("GET", "query", what=what, parameters={"q": usage_query(metric, now)})
        rows = answer.get("records")
        values = [row.get("Value") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        counts = [int(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        return sum(counts) if counts else None


def _missing(name: str, allocations: Mapping[str, Allocation]) -> str:
    suggestions = get_close_matches(name, allocations, n=5, cutoff=0.5) or sorted(allocations)[:5]
    return (
        f"{_WHAT}: Salesforce does not report how much of {name!r} remains, or the org does not have this allocation, "
        "so it is unknown whether enough remains. Use a reported name "
        f"({', '.join(suggestions) or 'none is reported'}), and check upper and lower case."
    )
