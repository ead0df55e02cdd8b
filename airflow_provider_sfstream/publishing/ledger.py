"""The ledger of the events that one run has published: files that are written once, and read by name.

``source.json`` identifies the rows that the run publishes. ``requests/{n}.json`` is written before request ``n`` is
sent, and ``results/{n}.jsonl``, with a line for each event, after its response. If only the first exists, the result of
the request is unknown: its events are in doubt. Numbers are consecutive, so that listings, which may be outdated, are
not needed; and of two concurrent tries, one cannot begin its next request.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from airflow_provider_sfstream.exceptions import PositionConflictError, SalesforceStreamError
from airflow_provider_sfstream.landing.storage import replace_file, storage_errors, write_once

_CONSEQUENCE = (
    "Events that were published before are recorded and are not published again; the events of a request that was in "
    "progress are in doubt in the next try."
)


@dataclass(frozen=True)
class AcceptedEvent:
    """An event that Salesforce accepted: its ID, assigned by the publisher, and its replay ID."""

    event_id: str
    replay_id: bytes


SentEvents = Sequence[tuple[str, int, str | None]]
"""ID, row number and key of each event of a request, in order."""


@dataclass
class RecordedRun:
    """The recorded state of a run.

    :param next_number: number of the next request.
    :param accepted: the IDs of the events that Salesforce accepted, as bytes.
    :param unanswered: events of the requests without a recorded response, by the number of the request.
    :param latest: the last two events that were accepted; ``trail`` those before the first unanswered request: replay
        IDs to read the topic from.
    """

    next_number: int = 0
    accepted: set[bytes] = field(default_factory=set)
    first: AcceptedEvent | None = None
    last: AcceptedEvent | None = None
    unanswered: dict[int, SentEvents] = field(default_factory=dict)
    latest: deque[AcceptedEvent] = field(default_factory=lambda: deque(maxlen=2))
    trail: tuple[AcceptedEvent, ...] = ()

    def accept(self, event: AcceptedEvent) -> None:
        """Record an event that Salesforce accepted, the next one on the topic."""
        self.accepted.add(UUID(event.event_id).bytes)
        self.first, self.last = self.first or event, event
        self.latest.append(event)

    def has_accepted(self, event_id: str) -> bool:
        """Return whether Salesforce accepted the event."""
        return UUID(event_id).bytes in self.accepted


class PublishLedger:
    """The folder of one run.

    :param filesystem: an fsspec filesystem.
    :param folder: folder of the run, as a path of the filesystem.
    :param url: URL of the same folder, for users.
    :raises LandingError: by every method, if the storage fails.
    """

    def __init__(self, filesystem: Any, folder: str, url: str) -> None:
        self._filesystem, self._folder, self.url = filesystem, folder, url

    def source(self) -> dict[str, Any] | None:
        """Return the recorded source of the rows; ``None`` in the first try of a run."""
        text = self._read("source.json")
        return None if text is None else dict(json.loads(text))

    def record_source(self, source: Mapping[str, Any]) -> None:
        """Record the rows of the run, once."""
        self._write_once("source.json", json.dumps(source))

    def previous_trail(self) -> list[list[str]]:
        """Return the last accepted events of the previous run of this task, in the form of ``source.json``."""
        text = self._read("../last.json")
        return [] if text is None else list(json.loads(text))

    def write_trail(self, trail: Iterable[AcceptedEvent]) -> None:
        """Write the last accepted events for the next run of the task."""
        text = json.dumps([[event.event_id, event.replay_id.hex()] for event in trail])
        with self._errors("last.json"):
            replace_file(self._filesystem, self._path("../last.json"), text.encode())

    def read(self, trail: Iterable[Sequence[str]]) -> RecordedRun:
        """Return the recorded state of the run.

        :param trail: events that were accepted before the run, in the form of its source.
        """
        recorded = RecordedRun()
        recorded.latest.extend(AcceptedEvent(event_id, bytes.fromhex(replay_id)) for event_id, replay_id in trail)
        while (text := self._read(_request(recorded.next_number))) is not None:
            results = self._read(_results(recorded.next_number))
            if results is None:
                recorded.trail = recorded.trail if recorded.unanswered else tuple(recorded.latest)
                events = [(event_id, row, key) for event_id, row, key in json.loads(text)["events"]]
                recorded.unanswered[recorded.next_number] = events
            for line in map(json.loads, (results or "").splitlines()):
                if line["replay_id"] is not None:
                    recorded.accept(AcceptedEvent(line["id"], bytes.fromhex(line["replay_id"])))
            recorded.next_number += 1
        return recorded

    def begin(self, number: int, attempt: str, events: SentEvents) -> None:
        """Record a request that is about to be sent by a try of the task.

        :raises PositionConflictError: if another try has sent a request meanwhile. The caller must not send this one.
        """
        sent_at = datetime.now(UTC).isoformat()  # by the worker's clock, for users only
        self._write_once(_request(number), json.dumps({"attempt": attempt, "sent_at": sent_at, "events": events}))

    def finish(self, number: int, results: Iterable[Mapping[str, Any]]) -> None:
        """Record the response to a request: the :func:`result_line` of each event."""
        self._write_once(_results(number), _lines(results))

    def fail(self, attempt: str, part: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Record rows that a try could not publish, with their values."""
        self._write_once(f"failures/{attempt}/{part:06d}.jsonl", _lines(rows))

    def failures_url(self, attempt: str) -> str:
        """Return the folder of a try's failures."""
        return f"{self.url}/failures/{attempt}"

    def _read(self, name: str) -> str | None:
        with self._errors(name):
            try:
                return bytes(self._filesystem.cat_file(self._path(name))).decode()
            except FileNotFoundError:
                return None

    def _write_once(self, name: str, text: str) -> None:
        with self._errors(name):
            is_first = write_once(self._filesystem, self._path(name), text.encode())
        if not is_first:
            raise PositionConflictError(
                f"{self.url}/{name} was written by another try of this task, which also runs. This try has sent "
                "nothing since. The events that either try published are recorded, and the next try continues from "
                "there."
            )

    def _path(self, name: str) -> str:
        """Return the path of a file in the folder of the run, or with ``../`` in that of the task."""
        folder = self._folder.rpartition("/")[0] if name.startswith("../") else self._folder
        return f"{folder}/{name.removeprefix('../')}"

    def _errors(self, name: str) -> Any:
        remedy = "Check results_url, and the storage connection results_conn_id"
        return storage_errors(f"{self.url}/{name} could not be read or written", remedy, _CONSEQUENCE)


def result_line(
    row: int, key: str | None, event_id: str, replay_id: bytes | None, error: SalesforceStreamError | None
) -> dict[str, Any]:
    """Return the line of one event for :meth:`PublishLedger.finish`."""
    return {
        "row": row,
        "key": key,
        "id": event_id,
        "replay_id": None if replay_id is None else replay_id.hex(),
        "error": None if error is None else type(error).__name__,
        "text": None if error is None else str(error),
    }


def _request(number: int) -> str:
    return f"requests/{number:06d}.json"


def _results(number: int) -> str:
    return f"results/{number:06d}.jsonl"


def _lines(documents: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(document, default=_text)}\n" for document in documents)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
