"""Fetching the records of a refresh into files, a page at a time."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import AccessDeniedError, ServiceUnavailableError
from airflow_provider_sfstream.operators._refresh_plan import TablePlan, fields_of_columns
from airflow_provider_sfstream.protocol import soql

if TYPE_CHECKING:
    from airflow_provider_sfstream.clients.records import Record, RecordClient
    from airflow_provider_sfstream.operators._refresh_files import RefreshFiles
    from airflow_provider_sfstream.spark.refresh_document import TableRefresh

log = logging.getLogger(__name__)

FEWEST_IDS = 20
"""Where fewer ids than this fit into a URL, because an object has many fields, the Bulk API is used."""

_SYSTEM = {"_deleted": "IsDeleted", "_refreshed_at": "SystemModstamp"}
Line = dict[str, str]


@dataclass(frozen=True)
class Limits:
    """From how many records on the Bulk API is used, and how many its pages have."""

    bulk_threshold: int
    bulk_page_records: int


@dataclass
class Fetched:
    """What was fetched for one table: how many records, and how many of those asked for are deleted in the org."""

    records: int = 0
    deleted: int = 0


class TableFetch:
    """Fetches what a refresh needs for one table.

    :param plan: which records.
    """

    def __init__(self, client: RecordClient, files: RefreshFiles, plan: TablePlan, limits: Limits) -> None:
        self._client, self._files, self._plan, self._limits = client, files, plan, limits
        self.fetched = Fetched()

    def run(self) -> TableRefresh:
        """Write the records; return what the job has to know of them.

        :raises SalesforceStreamError: naming what was fetched when it failed.
        """
        from airflow_provider_sfstream.spark.refresh_document import TableRefresh

        plan = self._plan
        described = self._client.describe(plan.name)
        columns = fields_of_columns(plan.table.columns.columns, described)
        self._warn_of_others(columns)
        fields = {"Id": "Id", **{name: field for name, field in _SYSTEM.items() if field in described}, **columns}
        lines = self._all(fields) if plan.mode == "full" else self._listed(fields)
        # ASCII, so that nothing in a value ends a line.
        names = self._files.write(plan.name, (json.dumps(line) + "\n" for line in lines))
        return TableRefresh(
            mode=plan.mode,
            columns=tuple(columns),
            files=tuple(names),
            fetched=self.fetched.records,
            stream=plan.table.stream,
            applied_sequence=plan.stream.applied_sequence,
            next_sequence=plan.stream.next_sequence,
            last_window=plan.stream.last.window_id,
        )

    def _all(self, fields: Mapping[str, str]) -> Iterator[Line]:
        asked = list(fields.values())
        if self._is_large(asked):
            records = self._client.bulk_query(self._plan.name, asked, page_records=self._limits.bulk_page_records)
        else:
            records = self._client.query(self._plan.name, asked)
        for record in records:
            yield self._line(record, fields)

    def _is_large(self, asked: list[str]) -> bool:
        name = self._plan.name
        if not soql.fits_in_url(name, asked):
            return True
        try:
            count = self._client.count(name)
        except ServiceUnavailableError as error:
            log.info("%s: its records cannot be counted (%s), so it is taken for a large object.", name, error)
            return True
        log.info("%s: all %d records are fetched.", name, count)
        return count >= self._limits.bulk_threshold

    def _listed(self, fields: Mapping[str, str]) -> Iterator[Line]:
        """Yield a line for each dirty row, also for those whose record the org no longer has."""
        name, asked = self._plan.name, list(fields.values())
        log.info("%s: the records of %d dirty rows are fetched.", name, self._plan.table.dirty)
        by_bulk = soql.ids_in_url(name, asked) < FEWEST_IDS
        size = (soql.ids_in_body if by_bulk else soql.ids_in_url)(name, asked)
        if not size:
            raise AccessDeniedError(
                f"{name} has so many fields ({len(asked)}) that no query can name them all. Hide fields that nobody "
                "needs from the user of the connection. The replica is as it was."
            )
        for chunk in soql.chunks(self._files.dirty_rows(self._plan.table.dirty_list), size):
            listed = dict(chunk)
            if by_bulk:
                found = self._client.bulk_query(name, asked, list(listed), page_records=self._limits.bulk_page_records)
            else:
                found = self._client.query(name, asked, list(listed))
            for record in found:
                line = self._line(record, fields)
                yield line | {"_sequence": str(listed.pop(line["Id"]))}
            self.fetched.deleted += len(listed)
            yield from ({"Id": id_, "_found": "false", "_sequence": str(number)} for id_, number in listed.items())

    def _line(self, record: Record, fields: Mapping[str, str]) -> Line:
        line = {name: text for name, field in fields.items() if (text := record[field]) is not None}
        if "LastName" in line:
            # SOQL makes up the Name of a person account from its parts; its change events have the parts alone.
            line.pop("Name", None)
        self.fetched.records += 1
        self.fetched.deleted += line.get("_deleted") == "true"
        return line | {"_found": "true"}

    def _warn_of_others(self, columns: Mapping[str, str]) -> None:
        others = [name for name in self._plan.table.columns.columns if name not in columns]
        if others:
            log.warning(
                "%s: columns that stay as they are, because the org has no such field, or hides it from the user: %s",
                self._plan.name,
                ", ".join(others),
            )
