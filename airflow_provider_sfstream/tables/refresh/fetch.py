"""Fetch of the records of a refresh into files, one page at a time."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import AccessDeniedError, SalesforceStreamError, ServiceUnavailableError
from airflow_provider_sfstream.landing.storage import make_folder, storage_errors
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules, Treatment
from airflow_provider_sfstream.salesforce import soql
from airflow_provider_sfstream.salesforce.errors.rest import query_error
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.refresh.plan import RefreshPlan
from airflow_provider_sfstream.tables.replica.refresh_document import FILE_NAME, FOLDER, TableRefresh
from airflow_provider_sfstream.tables.replica.table_fields import treatment_of

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.rest.records import Record, RecordClient
    from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
    from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument

log = logging.getLogger(__name__)

FEWEST_IDS = 20
"""Fewest IDs that must fit into a URL. If fewer fit, because an object has many fields, the Bulk API is used."""

SWITCHABLE_NAME = "Data:Switchable_PersonName"
"""Schema description of a name that is one text for some records, and several parts for others."""
_LAST_NAME = "_last_name"
"""Key of the last name if the table has no column for it: it identifies persons, and is not written."""
_SYSTEM = {"_deleted": "IsDeleted", "_refreshed_at": "SystemModstamp"}
LINES_PER_FILE = 500_000
_REMEDY = "Check output_url, and the storage connection output_conn_id"
Line = dict[str, str]


class TableFetch:
    """Fetch of the records that a refresh needs for one table. It counts the fetched ``records``, and requested records
    that are ``deleted`` in the org.

    :param bulk_threshold: number of records from which the Bulk API is used, in pages of ``bulk_page_records``.
    :param rules: field protection rules of the table, with the key of its hashes; they apply before values are written.
    """

    def __init__(
        self,
        client: RecordClient,
        files: RefreshFiles,
        plan: RefreshPlan,
        bulk_threshold: int,
        bulk_page_records: int,
        rules: FieldRules = NO_RULES,
    ) -> None:
        self._client, self._files, self._plan, self._rules = client, files, plan, rules
        self._bulk_threshold, self._bulk_page_records = bulk_threshold, bulk_page_records
        self._treatments: dict[str, Treatment] = {}
        self._text_columns: set[str] = set()
        self.records = self.deleted = 0

    def run(self) -> TableRefresh | None:
        """Write the records; return their description for the job, ``None`` if it has nothing to do because all columns
        to fetch are hidden from the user.

        :raises SalesforceStreamError: if a fetch fails; it names the object.
        """
        began_at = datetime.now(UTC).isoformat()
        described = self._client.describe(self._plan.name)
        self._warn_of_hidden(self._plan.hidden(described))
        plan = self._plan.resolve(described)
        if plan is None:
            return None
        self._plan = plan
        computed = plan.computed_columns(described)
        columns = plan.fields(described)
        columns |= {name: field for name, (field, _) in (computed or {}).items()}
        self._find_treatments(computed or {})
        removed = [name for name in plan.may_be_gone if name not in columns]
        if plan.mode in ("full", "computed") and computed is not None:
            removed += [name for name in plan.table.computed.columns if name not in columns]
        self._warn_of_missing_fields(columns, removed)
        fields = {"Id": "Id", **columns}
        if "Name" in columns and "LastName" not in columns and "LastName" in described and self._has_generated_names():
            fields[_LAST_NAME] = "LastName"
        if plan.mode in ("records", "full", "compare"):
            fields |= {name: each for name, each in _SYSTEM.items() if each in described}
        lines: Iterator[Line] = iter(())
        if plan.mode == "records":
            lines = self._listed(fields)
        elif columns or removed or plan.mode in ("full", "compare"):  # a row without a line counts as deleted
            lines = self._all(fields)
        # ASCII, so that no character of a value ends a line.
        names = self._files.write(plan.name, (json.dumps(line) + "\n" for line in lines))
        return TableRefresh(
            mode=plan.mode,
            columns=(*columns, *removed),
            files=tuple(names),
            fetched=self.records,
            stream=plan.table.stream,
            applied_sequence=plan.stream.applied_sequence,
            next_sequence=plan.stream.next_sequence,
            last_window=plan.stream.last.window_id,
            began_at=began_at,
            computed=None if computed is None else {name: type_ for name, (_, type_) in computed.items()},
            on_change=plan.on_change,
            hidden=plan.hidden(described),
        )

    def _all(self, fields: Mapping[str, str]) -> Iterator[Line]:
        requested_fields = list(fields.values())
        for record in self._query(requested_fields, is_large=self._is_large(requested_fields)):
            yield self._line(record, fields)

    def _query(self, fields: list[str], ids: Sequence[str] = (), *, is_large: bool) -> Iterable[Record]:
        """Return the records with some IDs, or all, through the Bulk API if they are many."""
        if is_large:
            return self._client.bulk_query(self._plan.name, fields, ids, page_records=self._bulk_page_records)
        return self._client.query(self._plan.name, fields, ids)

    def _is_large(self, requested_fields: list[str]) -> bool:
        name = self._plan.name
        if not soql.fits_in_url(name, requested_fields):
            return True
        try:
            count = self._client.count(name)
        except ServiceUnavailableError as error:
            log.info("%s: cannot count the records (%s). The Bulk API is used, as for a large object.", name, error)
            return True
        log.info("%s: fetching all %d records.", name, count)
        return count >= self._bulk_threshold

    def _listed(self, fields: Mapping[str, str]) -> Iterator[Line]:
        """Yield a line for each dirty row, including rows whose record the org no longer has."""
        name, requested_fields = self._plan.name, list(fields.values())
        table = self._plan.table
        log.info("%s: fetching %d dirty and %d changed records.", name, table.dirty, table.computed.changed)
        uses_bulk_api = soql.ids_in_url(name, requested_fields) < FEWEST_IDS
        size = (soql.ids_in_body if uses_bulk_api else soql.ids_in_url)(name, requested_fields)
        if not size:
            raise AccessDeniedError(
                f"{name} has {len(requested_fields)} fields, too many for one query. Revoke the read access of the "
                "connection's user to fields that are not required (field-level security). The replica is unchanged."
            )
        for chunk in soql.chunks(self._files.dirty_rows(self._plan.table.dirty_list), size):
            sequences = dict(chunk)
            for record in self._query(requested_fields, list(sequences), is_large=uses_bulk_api):
                line = self._line(record, fields)
                if line["Id"] not in sequences:
                    raise self._invalid_response(f"the record {line['Id']} was returned twice, or was not requested")
                yield line | {"_sequence": str(sequences.pop(line["Id"]))}
            self.deleted += len(sequences)
            yield from ({"Id": id_, "_found": "false", "_sequence": str(number)} for id_, number in sequences.items())

    def _line(self, record: Record, fields: Mapping[str, str]) -> Line:
        line = {name: text for name, field in fields.items() if (text := record[field]) is not None}
        try:
            to_18(line.get("Id", ""))
        except ValueError as error:
            raise self._invalid_response(str(error)) from None
        is_person = line.keys() & {"LastName", _LAST_NAME}
        line.pop(_LAST_NAME, None)
        if is_person and "Name" in self._plan.columns and self._has_generated_names():
            line.pop("Name", None)
        for name in line.keys() & self._treatments.keys():
            value = line.pop(name)
            text = self._rules.text(value, self._treatments[name]) if name in self._text_columns else None
            line |= {} if text is None else {name: text}
        self.records += 1
        self.deleted += line.get("_deleted") == "true"
        return line | {"_found": "true"}

    def _find_treatments(self, computed: Mapping[str, tuple[str, ColumnType]]) -> None:
        """Store the treatment of protected columns, and which of them contain text; the others become null."""
        table = self._plan.table
        for name, type_ in {**table.columns, **{name: type_ for name, (_, type_) in computed.items()}}.items():
            is_computed = name in computed or name in table.computed.columns
            if (treatment := treatment_of(self._plan.name, table, name, is_computed=is_computed)) is not None:
                self._treatments[name] = treatment
                self._text_columns.update([name] if type_ == "string" else ())

    def _has_generated_names(self) -> bool:
        """Return whether SOQL generates the ``Name`` of records that have a ``LastName``, as for person accounts: their
        change events contain only the parts."""
        return self._plan.table.fields.get("Name") == SWITCHABLE_NAME

    def _invalid_response(self, reason: str) -> SalesforceStreamError:
        return query_error(200, None, f"not as documented: {reason}", what=f"{self._plan.name}: its records")

    def _warn_of_hidden(self, hidden: Collection[str]) -> None:
        if hidden:
            log.warning(
                "%s: flagged columns that the user of the connection may not read: %s. Grant the user read access to "
                "their fields (field-level security). The table stays flagged (schema) until a refresh can fetch them.",
                self._plan.name,
                ", ".join(hidden),
            )

    def _warn_of_missing_fields(self, columns: Mapping[str, str], removed: list[str]) -> None:
        reason = "because the org has no field for them, or the user cannot read it"
        unchanged = [name for name in self._plan.columns if name not in columns and name not in removed]
        effect_of_no_value = "are not compared" if self._plan.mode == "compare" else "do not change"
        for effect, names in ((effect_of_no_value, unchanged), ("become null", removed)):
            if names:
                log.warning("%s: columns that %s, %s: %s", self._plan.name, effect, reason, ", ".join(names))


class RefreshFiles:
    """Folder of one refresh, and the lists of dirty rows beside it.

    :param open_path: returns the ``ObjectStoragePath`` of a URL below it.
    """

    def __init__(self, output_url: str, open_path: Callable[[str], Any], refresh_id: str) -> None:
        self._output = output_url.rstrip("/")
        self._path = open_path
        self._folder = f"{self._output}/{FOLDER}/{refresh_id}"
        self.refresh_id = refresh_id
        self.url = f"{self._folder}/{FILE_NAME}"

    def clean(self) -> None:
        """Remove this refresh's folder, and those of killed tasks: only one refresh at a time writes here."""
        with storage_errors(f"The folder {self._output}/{FOLDER} cannot be cleaned", _REMEDY):
            folder = self._path(f"{self._output}/{FOLDER}")
            if folder.exists():
                folder.rmdir(recursive=True)

    def write(self, table: str, lines: Iterable[str]) -> list[str]:
        """Write lines as they arrive; return the names of the files.

        :raises LandingError: if the storage fails.
        """
        names: list[str] = []
        for number, numbered in groupby(enumerate(lines), lambda line: line[0] // LINES_PER_FILE):
            names.append(f"{table}/part-{number:05d}.jsonl")
            path = self._path(f"{self._folder}/{names[-1]}")
            with storage_errors(f"{path} cannot be written", _REMEDY):
                make_folder(path.fs, path.parent.path)
                with path.open("w", encoding="ascii") as file:
                    file.writelines(line for _, line in numbered)
        return names

    def publish(self, document: RefreshDocument) -> None:
        """Write the document, after all files that it names."""
        with storage_errors(f"{self.url} cannot be written", _REMEDY):
            path = self._path(self.url)
            make_folder(path.fs, path.parent.path)
            path.write_text(document.to_json())

    def dirty_rows(self, dirty_list: str | None) -> Iterator[tuple[str, int]]:
        """Yield the ID and the sequence number of each dirty row of a table.

        :param dirty_list: path of the list, from the snapshot.
        :raises LandingError: if the list is missing or broken.
        """
        where = f"{self._output}/{dirty_list}"
        with storage_errors(f"The list of dirty rows {where} cannot be read", _REMEDY):
            files = sorted((p for p in self._path(where).iterdir() if p.name.endswith(".json")), key=str)
        for path in files:
            # Use the path's own filesystem: in Airflow 3.1.1, files of ObjectStoragePath do not yield lines.
            with (
                storage_errors(f"The list of dirty rows {where} cannot be read", _REMEDY),
                path.fs.open(path.path, "r") as file,
            ):
                lines = (json.loads(line) for line in file)
                yield from ((str(row["Id"]), int(row["sequence"])) for row in lines)
