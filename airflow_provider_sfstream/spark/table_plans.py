"""From the schemas of the windows at hand to one plan for each table, placing every field in a column."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.spark.avro_columns import members_of
from airflow_provider_sfstream.spark.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.event_batches import ENVELOPE, PARTITIONS, SchemaPlan
from airflow_provider_sfstream.spark.event_tables import check_table_name
from airflow_provider_sfstream.spark.landed_windows import LandedWindow, TextFiles

log = logging.getLogger(__name__)


@dataclass
class Schemas:
    """The readable schemas by table and schema id, and why others cannot be used, by schema id."""

    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def all_tell_time(self) -> bool:
        """Tell whether every event has a time of its own, so that it has the same event date in every window."""
        return all(_tells_time(text) for schemas in self.tables.values() for text in schemas.values())


def read_schemas(files: TextFiles, windows: Iterable[LandedWindow]) -> Schemas:
    """Read the schema files of all windows. What cannot be read or understood is refused, never an error."""
    found = Schemas()
    for schema_id, url in sorted({pair for window in windows for pair in window.schemas.items()}):
        try:
            text = files.read_text(url)
            schema = json.loads(text)
            members_of(schema)
            table = check_table_name(str(schema["name"]).rpartition(".")[2])
        except FileNotFoundError:
            found.refused.setdefault(schema_id, f"the file of schema {schema_id} is missing")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            found.refused.setdefault(schema_id, f"schema {schema_id} cannot be used: {error}")
        else:
            found.tables.setdefault(table, {})[schema_id] = text
    for schemas in found.tables.values():
        for schema_id in schemas:
            found.refused.pop(schema_id, None)
    return found


def place_columns(
    table: str, schemas: dict[str, str], registry: ColumnRegistry
) -> tuple[dict[str, Any], dict[str, SchemaPlan]]:
    """Return the columns that events of these schemas have in the table, and how each schema fills them.

    New columns are added to ``registry``; a field whose type is not its column's is written elsewhere, and logged.
    """
    plans: dict[str, SchemaPlan] = {}
    for schema_id, text in sorted(schemas.items()):
        members = members_of(json.loads(text))
        placed = registry.place([(m.name, m.value.type) for m in members], reserved=(*ENVELOPE, *PARTITIONS))
        for name, column in placed.items():
            if name.lower() != column.lower():
                log.warning(
                    "%s.%s of schema %s is written to column %s: its type differs.", table, name, schema_id, column
                )
        plans[schema_id] = SchemaPlan(text, placed)
    used = {column for plan in plans.values() for column in plan.columns.values()}
    return {name: type_ for name, type_ in registry.columns.items() if name in used}, plans


def _tells_time(schema_json: str) -> bool:
    for member in members_of(json.loads(schema_json)):
        if member.name == "ChangeEventHeader" and "commitTimestamp" in (m.name for m in member.value.members):
            return True
    fields = {item["name"]: item["type"] for item in json.loads(schema_json)["fields"]}
    return fields.get("CreatedDate") == "long"
