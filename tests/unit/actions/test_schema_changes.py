"""Errors that report changed event schemas."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_sfstream.actions.drain.results import schema_change_error
from airflow_provider_sfstream.replay_windows.schema_changes import SchemaChange
from airflow_provider_sfstream.salesforce.schemas import parse


def schema(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return parse(json.dumps({"type": "record", "name": "Order__e", "fields": fields}))


def test_each_kind_of_change_is_named_with_its_fields() -> None:
    before = schema(Gone="string", Other="long", Loose="double", Same="int")
    change = SchemaChange.between(
        "old", before, "new", schema(Other="string", Loose=["null", "double"], Same="int", New="int")
    )
    message = str(schema_change_error("/event/Order__e", [change.document()]))
    for kind in (
        "1 fields added: New",
        "1 fields removed: Gone",
        "1 fields retyped: Other",
        "1 fields became nullable: Loose",
    ):
        assert kind in message
    assert schema_change_error("/event/Order__e", []) is None
