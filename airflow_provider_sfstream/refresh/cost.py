"""How many API requests a refresh takes at least, before anything is asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_sfstream.protocol import soql
from airflow_provider_sfstream.refresh.plan import RefreshPlan

_ALL_RECORDS = 2
"""To count them, and for one page. How many there are, and so how many pages, only the count says."""


def least_requests(plans: Iterable[RefreshPlan]) -> int:
    """Return the number of API requests that these plans take at least.

    A describe for each table; for listed rows, as many queries as their ids need; for all records the fewest there are.
    """
    return sum(1 + (_for_rows(plan) if plan.mode == "records" else _ALL_RECORDS) for plan in plans)


def _for_rows(plan: RefreshPlan) -> int:
    rows = plan.table.dirty + plan.table.computed.changed
    # With the columns known so far; more of them leave less room for ids.
    room = max(1, soql.ids_in_url(plan.name, [*plan.columns]))
    return -(-rows // room)
