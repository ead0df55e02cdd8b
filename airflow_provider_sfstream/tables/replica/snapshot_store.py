"""The snapshots of a replica in its output folder: which is the newest, and how another one takes its place."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, StreamState
from airflow_provider_sfstream.tables.runner.engine import JobFiles

FOLDER = "_sfstream/replica/snapshots"
PAGE = 1_000
"""Window ids of a page. A snapshot names those of the last one to two pages; older ones never change again."""
_FILE_NAME = re.compile(r"(\d{12})\.json")


class SnapshotReader:
    """The snapshots below one output folder.

    :param files: the storage.
    :param base: the output folder, as the storage names it.
    """

    def __init__(self, files: JobFiles, base: str) -> None:
        self._reads = files
        self._folder = f"{base}/{FOLDER}"
        self._windows = f"{base}/_sfstream/replica/windows"

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

    def kept(self) -> list[Snapshot]:
        """Return all snapshots that are there, oldest first; those that a job removes meanwhile may be missing."""
        found = []
        for number in self._numbers():
            with suppress(FileNotFoundError):
                found.append(self.read(number))
        return found

    def older_windows(self, stream: str, pages: int) -> Iterator[list[str]]:
        """Yield the ids of the windows of each page of a stream, the newest page first.

        :param stream: its key.
        :param pages: how many there are, as its state says.
        """
        for number in reversed(range(pages)):
            yield json.loads(self._reads.read_text(self._page_url(stream, number)))

    def _page_url(self, stream: str, number: int) -> str:
        name = hashlib.sha256(stream.encode()).hexdigest()[:16]
        return f"{self._windows}/{name}/{number:09d}.json"

    def _numbers(self) -> list[int]:
        names = map(_FILE_NAME.fullmatch, self._reads.file_names(self._folder))
        return sorted(int(match[1]) for match in names if match)

    def _url(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


class SnapshotStore(SnapshotReader):
    """The snapshots below one output folder, for the job that writes them."""

    def __init__(self, files: JobFiles, base: str) -> None:
        super().__init__(files, base)
        self._files = files

    def publish(self, snapshot: Snapshot) -> Snapshot:
        """Make ``snapshot`` the replica; return it as it was published.

        :raises PositionConflictError: if another job published one of this number; it stands, this one's files are
            never read.
        """
        streams = {key: self._with_pages(key, state) for key, state in snapshot.streams.items()}
        snapshot = replace(snapshot, streams=streams)
        try:
            self._files.create_text(self._url(snapshot.number), snapshot.to_json())
        except FileExistsError as error:
            winner = self.read(snapshot.number).job or "another job"
            raise PositionConflictError(
                f"Snapshot {snapshot.number} of the replica below {self._folder} was published by {winner} meanwhile. "
                "Nothing of this one counts; run it again. Let one job at a time write to an output folder "
                "(max_active_runs=1, or a pool of one slot)."
            ) from error
        return snapshot

    def divided(self, keep: int) -> tuple[list[Snapshot], list[Snapshot]]:
        """Return all but the last ``keep`` snapshots, and these, each oldest first."""
        snapshots = [self.read(number) for number in self._numbers()]
        return snapshots[:-keep], snapshots[-keep:]

    def remove(self, snapshot: Snapshot) -> None:
        """Remove a snapshot, whose files nobody needs any longer."""
        self._files.delete(self._url(snapshot.number))

    def _with_pages(self, stream: str, state: StreamState) -> StreamState:
        """Return the state with no more recent windows than two pages have; those before are on pages of their own.

        A run that is repeated writes the same page again: its windows were all published before.
        """
        while len(state.recent) > 2 * PAGE:
            self._files.replace_text(self._page_url(stream, state.pages), json.dumps(state.recent[:PAGE]))
            state = replace(state, recent=state.recent[PAGE:], pages=state.pages + 1)
        return state
