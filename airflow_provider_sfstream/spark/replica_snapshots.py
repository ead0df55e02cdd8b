"""What a replica consists of at one moment, as one document: ``{output}/_sfstream/replica/snapshots/{number}.json``.

The document with the highest number is the replica. It names every file of every table and, for each stream, how far
its windows are applied, so that rows and progress change together or not at all, for all tables at once. A document
never changes once it is there, and neither does a file that it names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.spark.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.replica_rows import FlagReason

FORMAT, VERSION = "sfstream-replica", 1
REMEMBERED_WINDOWS = 1_000
_FILE_NAME = re.compile(r"(\d{12})\.json")

TableFormat = Literal["parquet", "delta", "iceberg"]


class ReadableFiles(Protocol):
    """Where snapshots are read from."""

    def read_text(self, url: str) -> str: ...

    def file_names(self, url: str) -> list[str]: ...


class WritableFiles(ReadableFiles, Protocol):
    """Where snapshots are kept."""

    def create_text(self, url: str, text: str) -> None: ...

    def delete(self, url: str) -> None: ...


@dataclass(frozen=True)
class AppliedWindow:
    """A window that a replica has taken in: the sequence of its first event, and how many events it has."""

    window_id: str
    manifest_url: str
    first_sequence: int
    event_count: int


@dataclass(frozen=True)
class StreamState:
    """How far the windows of one stream are applied.

    :param last: the window taken in last.
    :param through: its position as hex, ``None`` where it has none.
    :param applied_sequence: the sequence of the last event applied. Later ones of ``held`` belong to a transaction of
        which the rest is yet to come.
    :param applied_replay_id: the replay ID of that event as hex; ``None`` before the first.
    :param held: windows with events that are not applied yet, oldest first.
    :param recent: ids of the last windows taken in, oldest first.
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
    recent: tuple[str, ...] = ()

    @property
    def next_sequence(self) -> int:
        """The sequence that the first event of the next window gets."""
        return self.last.first_sequence + self.last.event_count


@dataclass(frozen=True)
class Flag:
    """Why a whole table has to be fetched, since when (ISO 8601, UTC), and the sequence of the event that says so."""

    reason: FlagReason
    since: str
    sequence: int


@dataclass(frozen=True)
class TableState:
    """One table of a replica.

    :param stream: key of the stream that its changes come from.
    :param table_prefix: catalog and namespace of an Iceberg table.
    :param columns: the record's columns, in order.
    :param files: for Parquet, the table's files by bucket, relative to the output folder.
    :param history: files of closed versions, relative to the output folder; ``None`` where no history is kept.
    :param dirty: how many rows have to be fetched.
    :param dirty_list: the folder, relative to the output folder, of JSON lines that list them (``Id``, ``sequence``).
    """

    stream: str
    table_format: TableFormat
    buckets: int
    table_prefix: str | None = None
    columns: ColumnRegistry = field(default_factory=ColumnRegistry)
    files: dict[int, tuple[str, ...]] = field(default_factory=dict)
    history: tuple[str, ...] | None = None
    dirty: int = 0
    dirty_list: str | None = None
    flag: Flag | None = None

    def flagged(self, flag: Flag) -> TableState:
        """Return the table with a flag. One that is there keeps its reason, and gets the later sequence."""
        if self.flag is not None:
            flag = replace(self.flag, sequence=max(self.flag.sequence, flag.sequence))
        return replace(self, flag=flag)

    def paths(self) -> Iterator[str]:
        """Yield every file and folder that belongs to the table, relative to the output folder."""
        for names in self.files.values():
            yield from names
        yield from self.history or ()
        if self.dirty_list is not None:
            yield self.dirty_list


@dataclass(frozen=True)
class Snapshot:
    """A replica at one moment. Number 0 stands for one that does not exist yet."""

    number: int = 0
    published_at: str | None = None
    streams: dict[str, StreamState] = field(default_factory=dict)
    tables: dict[str, TableState] = field(default_factory=dict)

    def next(self, streams: dict[str, StreamState], tables: dict[str, TableState], now: datetime) -> Snapshot:
        """Return the snapshot that follows, with these streams and tables in place of those of the same names."""
        stamp = now.astimezone(UTC).isoformat()
        return Snapshot(self.number + 1, stamp, {**self.streams, **streams}, {**self.tables, **tables})

    def to_json(self) -> str:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "number": self.number,
            "published_at": self.published_at,
            "streams": {key: _stream_to_document(state) for key, state in self.streams.items()},
            "tables": {name: _table_to_document(table) for name, table in self.tables.items()},
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> Snapshot:
        """Return the snapshot stored at ``where``.

        :raises ConfigurationError: if it is not one of a version known here.
        """
        try:
            document = json.loads(text)
            if document["format"] != FORMAT or document["version"] != VERSION:
                raise ValueError(f"it is {document['format']!r} of version {document['version']!r}")
            return cls(
                document["number"],
                document["published_at"],
                {key: _stream_of_document(each) for key, each in document["streams"].items()},
                {name: _table_of_document(each) for name, each in document["tables"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{where} is not a replica snapshot that this version of the package can read ({error}). Upgrade "
                "airflow-provider-sfstream where the job runs, or give another output folder. Nothing was written."
            ) from error


class SnapshotReader:
    """The snapshots below one output folder.

    :param files: the storage.
    :param base: the output folder, as the storage names it.
    """

    def __init__(self, files: ReadableFiles, base: str) -> None:
        self._reads = files
        self._folder = f"{base}/_sfstream/replica/snapshots"

    def current(self) -> Snapshot:
        """Return the replica as it is now; its number is 0 where there is none.

        :raises ConfigurationError: if the newest snapshot cannot be understood.
        """
        numbers = self._numbers()
        return self.read(numbers[-1]) if numbers else Snapshot()

    def read(self, number: int) -> Snapshot:
        """Return one snapshot.

        :raises FileNotFoundError: if it is not kept any longer.
        """
        url = self._url(number)
        return Snapshot.from_json(self._reads.read_text(url), url)

    def _numbers(self) -> list[int]:
        names = map(_FILE_NAME.fullmatch, self._reads.file_names(self._folder))
        return sorted(int(match[1]) for match in names if match)

    def _url(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


class SnapshotStore(SnapshotReader):
    """The snapshots below one output folder, for the job that writes them."""

    def __init__(self, files: WritableFiles, base: str) -> None:
        super().__init__(files, base)
        self._files = files

    def publish(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` the replica.

        :raises PositionConflictError: if another job published one of this number; it stands, this one's files are
            never read.
        """
        try:
            self._files.create_text(self._url(snapshot.number), snapshot.to_json())
        except FileExistsError as error:
            raise PositionConflictError(
                f"Another job published snapshot {snapshot.number} of the replica below {self._folder} meanwhile. "
                "Nothing of this one counts; run it again. Let one job at a time write to an output folder "
                "(max_active_runs=1, or a pool of one slot)."
            ) from error

    def forget(self, keep: int) -> list[Snapshot]:
        """Remove all but the last ``keep`` snapshots; return those that are left, oldest first."""
        numbers = self._numbers()
        for number in numbers[:-keep]:
            self._files.delete(self._url(number))
        return [self.read(number) for number in numbers[-keep:]]


def _stream_to_document(state: StreamState) -> dict[str, Any]:
    document = vars(state) | {"last": vars(state.last), "next_sequence": state.next_sequence}
    return document | {"held": [vars(window) for window in state.held], "recent": list(state.recent)}


def _stream_of_document(document: dict[str, Any]) -> StreamState:
    values = {name: value for name, value in document.items() if name != "next_sequence"}
    values["last"] = AppliedWindow(**document["last"])
    values["held"] = tuple(AppliedWindow(**window) for window in document["held"])
    values["recent"] = tuple(document["recent"])
    return StreamState(**values)


def _table_to_document(table: TableState) -> dict[str, Any]:
    columns = [{"name": name, "type": type_} for name, type_ in table.columns.columns.items()]
    flag = None if table.flag is None else vars(table.flag)
    files = {str(bucket): list(names) for bucket, names in sorted(table.files.items())}
    history = None if table.history is None else list(table.history)
    return vars(table) | {"columns": columns, "flag": flag, "files": files, "history": history}


def _table_of_document(document: dict[str, Any]) -> TableState:
    values = dict(document)
    values["columns"] = ColumnRegistry({column["name"]: column["type"] for column in document["columns"]})
    values["flag"] = None if document["flag"] is None else Flag(**document["flag"])
    values["files"] = {int(bucket): tuple(names) for bucket, names in document["files"].items()}
    values["history"] = None if document["history"] is None else tuple(document["history"])
    return TableState(**values)
