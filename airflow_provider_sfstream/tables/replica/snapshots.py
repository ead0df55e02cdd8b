"""State of a replica at one moment, as one document: ``{output}/_sfstream/replica/snapshots/{number}.json``.

The document with the highest number is the current state. It names the version of every Delta table and, for each
stream, the progress through its windows. So rows and progress of all tables change together or not at all. A published
document never changes, nor does a version that it names. Columns of tables are in separate documents
(``table_schemas``), which are read at the first use of a table's columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules, Treatment
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.table_schemas import UPGRADE, StoredSchema, TableSchema, parsed
from airflow_provider_sfstream.tables.rows.replica_columns import FlagReason

FORMAT, VERSION = "sfstream-replica", 4
_IN_SCHEMA = ("columns", "fields", "hidden")
"""Parts of a table's state that a stored schema has."""
SchemaOf = Callable[[str, str], StoredSchema]
"""Function that returns a stored schema for the name of a table and the name of the document."""


@dataclass(frozen=True)
class AppliedWindow:
    """Window that a replica has processed: the sequence number of its first event, and its number of events."""

    window_id: str
    manifest_url: str
    first_sequence: int
    event_count: int

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last event."""
        return self.first_sequence + self.event_count - 1


@dataclass(frozen=True)
class StreamState:
    """Progress of a replica through the windows of one stream.

    :param last: the window processed last.
    :param through: its position as hex, ``None`` if it has none.
    :param applied_sequence: sequence number of the last event applied. Later events of ``held`` belong to a transaction
        whose rest has not landed yet.
    :param applied_replay_id: replay ID of that event as hex; ``None`` before the first.
    :param held: windows with events that are not applied yet, oldest first.
    :param held_transaction: key of that transaction; ``None`` if none of these events is readable.
    :param recent: IDs of the last windows processed, oldest first.
    :param pages: number of pages of :data:`PAGE` IDs each that store the earlier windows.
    """

    org_id: str
    api: str
    topic: str
    subscription: str
    last: AppliedWindow
    through: str | None
    applied_sequence: int = 0
    applied_replay_id: str | None = None
    held: tuple[AppliedWindow, ...] = ()
    held_transaction: str | None = None
    recent: tuple[str, ...] = ()
    pages: int = 0

    @property
    def next_sequence(self) -> int:
        """Sequence number of the first event of the next window."""
        return self.last.last_sequence + 1

    @property
    def held_events(self) -> int:
        """Number of events that are not applied yet."""
        return self.next_sequence - 1 - self.applied_sequence


@dataclass(frozen=True)
class Flag:
    """Reason to fetch a whole table, time since when (ISO 8601, UTC), and sequence number of the event that shows it.

    :param columns: columns that a new schema added, changed or removed: the only ones to fetch for that reason.
    """

    reason: FlagReason
    since: str
    sequence: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComputedColumns:
    """Computed columns of a table. No event carries them: formulas, roll-up summaries, and all other fields that the
    describe call returns and the schema of the change events lacks.

    :param columns: their names.
    :param compared_at: start of the last fetch of all their values (ISO 8601, UTC). Records fetched later have newer
        values.
    :param on_change: whether rows that an event changed are listed, so that a refresh fetches them.
    :param changed: number of rows listed now, besides the dirty ones.
    """

    columns: tuple[str, ...] = ()
    compared_at: str | None = None
    on_change: bool = False
    changed: int = 0


@dataclass(frozen=True)
class TableState:
    """State of one table of a replica.

    :param stream: key of the stream that feeds the table.
    :param version: version of the table; -1 before it has rows.
    :param history: version of the table of ended versions, -1 before it has one; ``None`` without a history.
    :param columns: the record's columns, in order.
    :param dirty: number of rows that must be fetched.
    :param dirty_list: folder, relative to the output folder, of the JSON lines that list them (``Id``, ``sequence``),
        and the rows whose computed columns must be fetched because an event changed them.
    :param fields: columns of records by the schema of the last event applied, each with the schema's description of its
        field, which differs for a field that was deleted and created again.
    :param computed: the columns that no event carries.
    :param rules: rules for protected fields, without the key of hashes.
    :param hidden: treatment of the columns that the rules protect, by lower-case name, as found in its events' schemas.
    :param deletes: recorded choice for deleted records.
    """

    stream: str
    version: int = -1
    history: int | None = None
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    dirty: int = 0
    dirty_list: str | None = None
    flag: Flag | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    computed: ComputedColumns = field(default_factory=ComputedColumns)
    rules: FieldRules = NO_RULES
    hidden: Mapping[str, Treatment] = field(default_factory=dict)
    deletes: Deletes = "soft"

    @property
    def schema(self) -> TableSchema:
        """Columns of the table, read from their document if they are stored in one."""
        return TableSchema(dict(self.columns), dict(self.fields), dict(self.hidden))

    @property
    def stored_schema(self) -> StoredSchema | None:
        """Document that has the columns; ``None`` if there is none."""
        schemas = {getattr(vars(self)[part], "schema", None) for part in _IN_SCHEMA}
        return schemas.pop() if len(schemas) == 1 else None

    def flagged(self, flag: Flag) -> TableState:
        """Return the table with a flag.

        An existing flag retains its reason, unless it is for some columns only; it gets the later sequence number, and
        the columns of both flags.
        """
        if self.flag is not None:
            first = flag if self.flag.reason == "schema" else self.flag
            columns = tuple(sorted({*self.flag.columns, *flag.columns}))
            flag = replace(first, sequence=max(self.flag.sequence, flag.sequence), columns=columns)
        return replace(self, flag=flag)


@dataclass(frozen=True)
class Snapshot:
    """Replica at one moment, and the job that published it. Number 0 means that no snapshot exists yet."""

    number: int = 0
    published_at: str | None = None
    streams: dict[str, StreamState] = field(default_factory=dict)
    tables: dict[str, TableState] = field(default_factory=dict)
    job: str = ""

    def next(self, streams: dict[str, StreamState], tables: dict[str, TableState], now: datetime) -> Snapshot:
        """Return the next snapshot, with these streams and tables in place of those of the same names."""
        stamp = now.astimezone(UTC).isoformat()
        return Snapshot(self.number + 1, stamp, {**self.streams, **streams}, {**self.tables, **tables})

    def to_json(self, schemas: Mapping[str, str]) -> str:
        """Return the document.

        :param schemas: name of the stored schema of each table.
        """
        rules = list(dict.fromkeys(table.rules for table in self.tables.values() if table.rules))
        tables = {}
        for name, table in self.tables.items():
            values = {key: value for key, value in vars(table).items() if key not in _IN_SCHEMA}
            own_rules = rules.index(table.rules) if table.rules else None
            tables[name] = values | {"rules": own_rules, "schema": schemas[name]}
        document = {
            "format": FORMAT,
            "version": VERSION,
            "number": self.number,
            "published_at": self.published_at,
            "job": self.job,
            "streams": self.streams,
            "rules": rules,
            "tables": tables,
        }
        return json.dumps(document, separators=(",", ":"), default=to_document)

    @classmethod
    def from_json(cls, text: str, where: str, schema_of: SchemaOf) -> Snapshot:
        """Return the snapshot stored at ``where``.

        :param schema_of: returns stored schemas.
        :raises ConfigurationError: if it is not a snapshot of a supported version.
        """

        def build(document: dict[str, Any]) -> Snapshot:
            rules = [NO_RULES, *from_document(tuple[FieldRules, ...], document["rules"])]
            tables = {}
            for name, values in document["tables"].items():
                number, parts = values.pop("rules"), schema_of(name, values.pop("schema")).parts()
                own_rules = rules[0 if number is None else number + 1]
                tables[name] = replace(from_document(TableState, values), rules=own_rules, **parts)
            streams = from_document(dict[str, StreamState], document["streams"])
            return cls(document["number"], document["published_at"], streams, tables, document["job"])

        return parsed(text, f"{where} is not a replica snapshot", FORMAT, VERSION, build, UPGRADE)


def check_deletes(tables: Mapping[str, TableState], deletes: Deletes | None) -> None:
    """Check that a run treats deleted records as recorded in its tables.

    :param deletes: the run's choice; ``None``: that of each table.
    :raises ConfigurationError: if a table records another choice. Nothing was written.
    """
    conflicting = [name for name, table in sorted(tables.items()) if deletes not in (None, table.deletes)]
    if conflicting:
        recorded = tables[conflicting[0]].deletes
        raise ConfigurationError(
            f"The replica tables {', '.join(conflicting)} were created with deletes={recorded!r}, but this run has "
            f"deletes={deletes!r}. Set deletes={recorded!r}, or another output_url for a new replica. Nothing was "
            "written."
        )
