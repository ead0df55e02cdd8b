"""Reference replica in plain Python that applies landed change events one by one.

It shares no code with the job. If it equals the org, the events of a workload are sufficient to rebuild the org, and a
different replica of the job is a bug of the job.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pyarrow.parquet as pq

from live_check.bitmap_names import field_names
from tests.support.replica_comparison import Rows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LINE_BREAKS = ("\n", "\r\n")
_HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


class EventReplica:
    """Tables by entity. ``flagged`` has the entities of which all records have to be fetched from the org."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {}
        self.flagged: set[str] = set()
        self.gaps = 0
        self.diffs = 0
        self._schemas: dict[str, Any] = {}

    def apply(self, manifest_url: str) -> None:
        """Apply the events of a window, in order."""
        path = Path(urlsplit(manifest_url).path)
        manifest = json.loads(path.read_text())
        for schema_id, name in manifest["schemas"].items():
            schema = json.loads((path.parent / name).read_text())
            self._schemas[schema_id] = (schema, fastavro.parse_schema(schema))
        for file in manifest["files"]:
            for row in pq.read_table(path.parent / file["name"]).to_pylist():
                schema, parsed = self._schemas[row["schema_id"]]
                record = fastavro.schemaless_reader(io.BytesIO(row["payload"]), parsed, None)
                assert isinstance(record, dict)
                self._event(record, schema)

    def refresh(self, org: Mapping[str, Rows]) -> None:
        """Replace all dirty rows and all rows of flagged entities by the org's records."""
        for entity in self.flagged:
            self.tables[entity] = {}
        for entity, records in org.items():
            rows = self.tables.setdefault(entity, {})
            for record_id, record in records.items():
                if entity in self.flagged or rows.get(record_id, {}).get("_dirty"):
                    rows[record_id] = {**record, "_dirty": False}
        self.flagged.clear()

    def _event(self, event: dict[str, Any], schema: Mapping[str, Any]) -> None:
        header = event["ChangeEventHeader"]
        entity, change = header["entityName"], header["changeType"]
        if change == "GAP_OVERFLOW" or header["recordIds"][0].endswith("*"):
            self.flagged.add(entity)
            return
        rows = self.tables.setdefault(entity, {})
        values = _values(event, schema)
        self.gaps += change.startswith("GAP_")
        for record_id in header["recordIds"]:
            row = rows.setdefault(record_id, {"Id": record_id, "_deleted": False, "_dirty": change != "CREATE"})
            if len(row) == 3 and change == "UNDELETE":
                row["_dirty"] = False
            if row["_dirty"]:
                continue
            if change.startswith("GAP_"):
                row["_dirty"] = True
            elif change == "DELETE":
                row["_deleted"] = True
            elif change == "UPDATE":
                self._update(row, values, header, schema)
            else:
                row.update(values, _deleted=False)

    def _update(
        self, row: dict[str, Any], values: dict[str, Any], header: dict[str, Any], schema: Mapping[str, Any]
    ) -> None:
        diffs = field_names(header["diffFields"], schema)
        changed = {_column(name, schema) for name in field_names(header["changedFields"], schema)}
        nulled = {_column(name, schema) for name in field_names(header["nulledFields"], schema)}
        assert nulled <= changed
        assert set(diffs) <= changed
        new = {name: patched(row.get(name), values[name]) if name in diffs else values[name] for name in changed}
        self.diffs += len(diffs)
        row["_dirty"] = any(new[name] is None for name in diffs)
        if not row["_dirty"]:
            row.update(new)


def patched(text: str | None, diff: str) -> str | None:
    """Return the text after a diff, or ``None`` if it does not have the hash in the diff.

    A diff does not contain line breaks, and a text may have line breaks of two kinds.
    """
    head, wanted, *changes = diff.split("\n")
    assert head == "--- "
    for line_break in _LINE_BREAKS:
        after = line_break.join(_applied((text or "").split(line_break), changes))
        if hashlib.sha256(after.encode()).hexdigest() == wanted.removeprefix("+++ "):
            return after
    return None


def _applied(lines: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Apply the hunks of a diff. Count lines by the numbers in a hunk's head: a line of text may look like a head."""
    result: list[str] = []
    done, at = 0, 0
    while at < len(changes):
        match = _HUNK.fullmatch(changes[at])
        assert match is not None, changes[at]
        start, removed, _, added = map(int, match.groups())
        keep = start - (removed > 0)
        result += lines[done:keep]
        done = keep + removed
        result += [line[1:] for line in changes[at + 1 + removed : at + 1 + removed + added]]
        at += 1 + removed + added
    return [*result, *lines[done:]]


def _values(event: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return all columns of the event's record, null for fields without a value in the event."""
    values: dict[str, Any] = {}
    for one in schema["fields"][1:]:
        name, value = one["name"], event[one["name"]]
        parts = _parts(one, schema)
        if parts:
            inside = value if isinstance(value, dict) else {}
            values |= {_column(f"{name}.{part}", schema): inside.get(part) for part in parts}
            if "string" in one["type"]:
                values[name] = value if isinstance(value, str) else None
        else:
            values[name] = _typed(value, one.get("doc", ""))
    return values


def _typed(value: Any, doc: str) -> Any:
    kind = doc.split(":")[1]
    if value is None or kind not in ("DateTime", "DateOnly"):
        return value
    moment = _EPOCH + timedelta(milliseconds=value)
    return moment if kind == "DateTime" else date(moment.year, moment.month, moment.day)


def _parts(one: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    names = [branch if isinstance(branch, str) else branch["name"] for branch in one["type"]]
    records = (
        branch
        for other in schema["fields"][1:]
        for branch in other["type"]
        if isinstance(branch, dict) and branch["name"] in names
    )
    return [inner["name"] for record in records for inner in record["fields"]]


def _column(name: str, schema: Mapping[str, Any]) -> str:
    """Return the REST API's name of a field or of a part of a compound field."""
    parent, _, part = name.partition(".")
    if not part or parent == "Name":
        return part or name
    if parent.endswith("__c"):
        return f"{parent.removesuffix('c')}{part}__s"
    assert parent.endswith("Address")
    return parent.removesuffix("Address") + part
