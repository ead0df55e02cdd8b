"""``query`` and ``queryAll``, with results in pages."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.own_records import OWN_ENTITIES
from sfstream_localorg.rest.query_columns import query_columns
from sfstream_localorg.rest.query_results import QueryResult, query_result
from sfstream_localorg.rest.records import attributes

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_PAGE = 2_000
_MOST_LOCATORS = 100


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of queries."""
    queries = _Queries()
    return [
        route(org, "GET", "/query", queries.query),
        route(org, "GET", "/queryAll", queries.query_all),
        route(org, "GET", "/{kind:query|queryAll}/{locator}", queries.more),
    ]


class _Queries:
    """Open queries. All pages show the records at the time of the query, as at Salesforce."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, QueryResult] = OrderedDict()
        self._numbers = itertools.count(1)

    async def query(self, call: Call) -> Answer:
        return self._first(call, include_deleted=False)

    async def query_all(self, call: Call) -> Answer:
        return self._first(call, include_deleted=True)

    async def more(self, call: Call) -> Answer:
        locator, _, start = call.request.match_info["locator"].rpartition("-")
        if locator not in self._open or not start.isdigit():
            raise ApiError("INVALID_QUERY_LOCATOR", "invalid query locator")
        return 200, self._page(call, locator, int(start))

    def _first(self, call: Call, *, include_deleted: bool) -> Answer:
        result = query_result(call.org, call.request.query.get("q", ""), include_deleted=include_deleted)
        if call.request.query.get("columns", "").lower() == "true":
            own = result.query.entity.name.lower() in OWN_ENTITIES
            return 200, query_columns(result.query, own=own)
        if result.query.counts:
            counts = {"attributes": {"type": "AggregateResult"}, **result.counts()}
            return 200, {"totalSize": 1, "done": True, "records": [counts]}
        if not result.query.fields:
            return 200, {"totalSize": len(result.records), "done": True, "records": []}
        locator = numbered("01g", next(self._numbers))
        self._open[locator] = result
        if len(self._open) > _MOST_LOCATORS:
            self._open.popitem(last=False)
        return 200, self._page(call, locator, 0)

    def _page(self, call: Call, locator: str, start: int) -> dict[str, Any]:
        result = self._open[locator]
        end = start + _page_size(call)
        page: dict[str, Any] = {
            "totalSize": len(result.records),
            "done": end >= len(result.records),
            "records": [query_record_json(call, result, record) for record in result.records[start:end]],
        }
        if page["done"]:
            self._open.pop(locator, None)
        else:
            page["nextRecordsUrl"] = f"{call.base}/query/{locator}-{end}"
        return page


def query_record_json(call: Call, result: QueryResult, record: StoredRecord) -> dict[str, Any]:
    """Return a record of a query's result. Fields of a parent are a nested object, null without a parent."""
    shown: dict[str, Any] = {"attributes": attributes(call, result.query.entity, record.id)}
    for field in result.query.fields:
        if field.relationship is None:
            shown[field.column] = field.shown(record, result.parents)
            continue
        parent = field.record(record, result.parents)
        empty = None if parent is None else {"attributes": attributes(call, field.entity, parent.id)}
        nested = shown.setdefault(field.relationship, empty)
        if nested is not None:
            nested[field.column] = field.shown(record, result.parents)
    return shown


def _page_size(call: Call) -> int:
    requested = re.search(r"batchSize=(\d+)", call.request.headers.get("Sforce-Query-Options", ""))
    return min(max(int(requested[1]), 200), _PAGE) if requested else _PAGE
