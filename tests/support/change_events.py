"""Random change events of any schema, and their expected change rows.

This module decodes events with fastavro and shares no code with the job: it implements the rules of bitmaps and of
column names a second time, for one event and one field at a time.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro

Record = dict[str, Any]

CHANGE_TYPES = ("CREATE", "UPDATE", "DELETE", "UNDELETE", "GAP_CREATE", "GAP_UPDATE", "GAP_DELETE", "GAP_UNDELETE")
COMMITTED = 1_768_006_923_004
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CAPTURED = Path(__file__).parents[3] / "shared/schemas"


def captured_schema(name: str) -> Record | None:
    """Return a schema captured from a real org, or ``None`` if its file is missing."""
    path = _CAPTURED / f"{name}.avsc"
    return json.loads(path.read_text()) if path.exists() else None


def flat_columns(schema: Record) -> list[tuple[str, int, int | None, str, str]]:
    """Return name, position, part, Avro type and documented Salesforce type of each column."""
    records = {
        branch["name"]: branch["fields"]
        for field in schema["fields"]
        for branch in field["type"]
        if isinstance(branch, dict)
    }
    columns: list[tuple[str, int, int | None, str, str]] = []
    for position, field in enumerate(schema["fields"]):
        if position == 0:
            continue
        for branch in field["type"]:
            kind = branch["name"] if isinstance(branch, dict) else branch
            if kind in records:
                for part, inner in enumerate(records[kind]):
                    name = _name(kind, field["name"], inner["name"])
                    columns.append((name, position, part, inner["type"][1], ""))
            elif kind != "null":
                columns.append((field["name"], position, None, kind, field["doc"].split(":")[1]))
    return columns


def _name(kind: str, field: str, part: str) -> str:
    if kind.endswith("PersonName"):
        return part
    if field.endswith("__c"):
        return f"{field[:-1]}{part}__s"
    return f"{field[: -len('Address')]}{part}"


def random_event(schema: Record, shape: random.Random, change_type: str | None = None) -> Record:
    """Return an event with random bitmaps and random values, including compound fields and names as plain text."""
    changed, nulled = random_bitmap(schema, shape), random_bitmap(schema, shape, 0.03)
    header = {
        "entityName": "Any",
        "recordIds": [f"001{shape.getrandbits(39):012d}AAA" for _ in range(shape.choice((1, 1, 1, 2, 5)))],
        "changeType": change_type or shape.choice(("UPDATE", "UPDATE", *CHANGE_TYPES)),
        "changeOrigin": "",
        "transactionKey": f"{shape.getrandbits(8):02x}",
        "sequenceNumber": 1,
        "commitTimestamp": COMMITTED + shape.getrandbits(30),
        "commitNumber": 1,
        "commitUser": "005",
        "nulledFields": nulled,
        "diffFields": ["0x02"] if shape.random() < 0.1 else [],
        "changedFields": changed,
    }
    records: dict[str, Any] = {}
    values = {field["name"]: _random_value(field["type"], shape, records) for field in schema["fields"][1:]}
    return {"ChangeEventHeader": header} | values


def _random_value(type_: Any, shape: random.Random, records: dict[str, Any]) -> Any:
    for branch in type_:
        if isinstance(branch, dict):
            records[branch["name"]] = branch["fields"]
    kind = shape.choice(type_)
    kind = kind["name"] if isinstance(kind, dict) else kind
    if kind in records:
        return {part["name"]: _random_value(part["type"], shape, records) for part in records[kind]}
    makers = {
        "null": None,
        "string": f"text {shape.getrandbits(10)} é",
        "double": shape.getrandbits(20) / 8,
        "long": shape.getrandbits(40),
        "int": shape.getrandbits(20),
        "boolean": shape.random() < 0.5,
    }
    return makers[kind]


def random_bitmap(schema: Record, shape: random.Random, density: float = 0.1) -> list[str]:
    """Return random bitmaps in all forms that Salesforce's decoders accept, without using the package's code."""
    form = "0x{:x}" if shape.random() < 0.3 else "0x{:X}"
    beyond = shape.choice((0, 0, 1 << len(schema["fields"]), 1 << 300))
    top = sum(1 << at for at in range(len(schema["fields"])) if shape.random() < density) | beyond
    entries = [form.format(top)] if top and shape.random() < 0.8 else []
    compound = sorted({column[1] for column in flat_columns(schema) if column[2] is not None})
    chosen = [position for position in compound if shape.random() < 4 * density]
    return entries + [f"{position}-" + form.format(shape.randrange(1, 16) | beyond) for position in chosen]


def encode_events(schema: Record, events: Sequence[Record]) -> list[bytes]:
    """Return events as schemaless Avro."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    payloads = []
    for event in events:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, event)
        payloads.append(stream.getvalue())
    return payloads


def expected_changes(schema: Record, landed: Iterable[tuple[bytes, int, bytes]]) -> list[Record]:
    """Return the expected change rows of events. ``_set`` has column names.

    :param landed: payload, ``_sequence`` and replay ID of each event.
    """
    parsed, columns = fastavro.parse_schema(json.loads(json.dumps(schema))), flat_columns(schema)
    changes: list[Record] = []
    for payload, sequence, replay_id in landed:
        event = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
        assert isinstance(event, dict)
        changes += _changes(event, columns, {"_sequence": sequence, "_replay_id": replay_id})
    return changes


def _changes(event: Record, columns: Sequence[Any], envelope: Record) -> list[Record]:
    header, fields = event["ChangeEventHeader"], list(event.values())
    values = {name: _value(fields[at], part, real) for name, at, part, _, real in columns}
    operation, reason, chosen = _operation(header)
    if operation == "full":
        chosen = set(values)
    elif operation == "patch":
        changed, nulled = header["changedFields"], header["nulledFields"]
        to_null = named_columns(nulled, columns, [*changed, *nulled])
        chosen = named_columns(changed, columns, changed) | to_null
        values |= dict.fromkeys(to_null)
    return [
        {
            "Id": record_id,
            **envelope,
            "_operation": operation,
            "_dirty_reason": reason,
            "_set": chosen,
            "_commit_time": _EPOCH + timedelta(milliseconds=header["commitTimestamp"]),
            "_transaction_key": header["transactionKey"],
            **values,
        }
        for record_id in header["recordIds"]
        if header["changeType"] != "GAP_OVERFLOW" and not record_id.endswith("*")
    ]


def _operation(header: Mapping[str, Any]) -> tuple[str, str | None, set[str]]:
    kind = header["changeType"]
    if kind in ("CREATE", "UNDELETE"):
        return "full", None, set()
    if kind == "DELETE":
        return "delete", None, set()
    if kind == "UPDATE":
        return ("gap", "diff", set()) if header["diffFields"] else ("patch", None, set())
    return "gap", "gap", set()


def _value(field: Any, part: int | None, real: str) -> Any:
    if part is not None:
        return list(field.values())[part] if isinstance(field, dict) else None
    if field is None or isinstance(field, dict):
        return None
    if real == "DateTime":
        return _EPOCH + timedelta(milliseconds=field)
    return (_EPOCH + timedelta(milliseconds=field)).date() if real == "DateOnly" else field


def named_columns(entries: Sequence[str], columns: Sequence[Any], beside: Sequence[str]) -> set[str]:
    """Return the columns that bitmap entries name.

    An entry for a whole compound field does not include its parts if ``beside`` has an entry for parts of that field.
    """
    found: set[str] = set()
    by_part = {int(entry.split("-")[0]) for entry in beside if "-" in entry}
    for entry in entries:
        parent, _, digits = entry.rpartition("-")
        bits = int(digits, 16)
        for name, position, part, *_ in columns:
            if parent:
                if int(parent) == position and part is not None and bits & 1 << part:
                    found.add(name)
            elif bits & 1 << position and (part is None or position not in by_part):
                found.add(name)
    return found
