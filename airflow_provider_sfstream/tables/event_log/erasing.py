"""Taking records out of the Delta tables of an event log, the quarantine among them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.record_ids import RecordIds
from airflow_provider_sfstream.salesforce.topics import CHANGE_EVENT, change_event_of
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableVersion
from airflow_provider_sfstream.tables.delta.erasing import TableErasure, check_not_busy
from airflow_provider_sfstream.tables.event_log.delta_tables import PARTITION_BY
from airflow_provider_sfstream.tables.event_log.kept_rules import KeptRules
from airflow_provider_sfstream.tables.event_log.tables import QUARANTINE_TABLE, find_tables
from airflow_provider_sfstream.tables.rows.erased_rows import (
    HEADER,
    erased_events,
    erased_outcasts,
    is_header,
    is_outcast,
)
from airflow_provider_sfstream.tables.rows.hidden_values import coverage_of
from airflow_provider_sfstream.tables.runner.engine import JobFiles


class EventLogErasure:
    """What is to be erased from the tables below one folder.

    :param files: those below it.
    :param entity: the object.
    :param job: who erases, as the tables' history names it.
    :raises ConfigurationError: if a table cannot be searched, because its events do not tell their records. Nothing was
        erased.
    """

    def __init__(self, files: JobFiles, output: str, entity: str, job: str) -> None:
        self._base, self._entity = files.url(output), entity
        location = files.table_location(self._base)
        self._tables: list[tuple[str, DeltaTableLog]] = []
        kept, event = KeptRules.read(files, self._base), change_event_of(entity)
        for name in find_tables(files, self._base):
            table = DeltaTableLog(location.below(name), job)
            if name != event and (name.endswith(CHANGE_EVENT) or not _headers(table.version(bounds=False))):
                continue
            how = coverage_of(kept.of(name), name).of((HEADER, "recordIds"), is_opaque=True)
            if how is not None or not _headers(table.version(bounds=False)):
                raise ConfigurationError(
                    f"{self._base}/{name} does not tell of which record an event is, so nothing can be erased from it. "
                    "Make it anew in another folder, from the landing once it is erased from, and remove this one. "
                    "Nothing was erased."
                )
            self._tables.append((name, table))
        if QUARANTINE_TABLE in files.folders(self._base):
            self._tables.append((QUARANTINE_TABLE, DeltaTableLog(location.below(QUARANTINE_TABLE), job)))

    @property
    def tables(self) -> list[str]:
        """The names of the tables that are searched."""
        return [name for name, _ in self._tables]

    def run(self, ids: RecordIds) -> dict[str, int]:
        """Erase records; return how many ``rows`` of how many ``tables`` changed or went, and how many ``files`` went.

        :raises PositionConflictError: if another job is at work on a table. Doing it again later completes it.
        """
        counted = Counter[str](dict.fromkeys(("tables", "rows", "files"), 0))
        busy: list[str] = []
        for name, table in self._tables:
            erasure = TableErasure(name, table, partial(erased_events, ids=ids), is_header, PARTITION_BY)
            if name == QUARANTINE_TABLE:
                outcasts = partial(erased_outcasts, ids=ids, entity=self._entity)
                erasure = TableErasure(name, table, outcasts, is_outcast)
            rows = erasure.rewrite()
            removed, young = erasure.clean()
            counted.update(tables=bool(rows or removed), rows=rows, files=removed)
            busy += young
        check_not_busy(self._base, busy)
        return dict(counted)


def _headers(version: TableVersion) -> Sequence[str]:
    """Return the columns of a table that tell the header of a change event."""
    fields = json.loads(version.schema_json)["fields"] if version.schema_json else []
    return [field["name"] for field in fields if is_header(field["name"])]
