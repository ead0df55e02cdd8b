"""The JSON document in a Variable: its format, its version, and the errors for invalid documents. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.replay_stores.base import Position, PositionReset
from airflow_provider_sfstream.salesforce.streams import Gap, RunIdentity, Stream

FORMAT = "sfstream-replay-position"
GAPS_FORMAT = "sfstream-replay-gaps"
VERSION = 1


@dataclass(frozen=True)
class RecordedReset:
    """A reset, and the window of the position before it, from which the store finds the earlier windows."""

    reset: PositionReset
    from_window_id: str | None


@dataclass(frozen=True)
class PositionDocument:
    """The content of a stream's Variable. ``gaps`` are those of live windows, ``resets`` the audit records."""

    stream: Stream
    position: Position = field(default_factory=Position)
    run: RunIdentity | None = None
    gaps: tuple[Gap, ...] = ()
    resets: tuple[RecordedReset, ...] = ()

    def to_json(self) -> str:
        """Return the document as JSON text, in the form that the Airflow UI shows."""
        position = to_document(self.position)
        document = {
            **_header(FORMAT, self.stream),
            "position": position.pop("replay_id"),
            **position,
            "run": to_document(self.run),
            "gaps": to_document(self.gaps),
            "resets": [_reset_to_document(recorded) for recorded in self.resets],
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str, stream: Stream) -> PositionDocument:
        """Return the document in ``text``.

        :raises ValueError: if it is not a document of this package, has another version or stream, or was edited to an
            invalid position; the message names the fault.
        """
        with _field_errors():
            document = _parsed(text, FORMAT, stream)
            fence, window_id = document["fence"], document["window_id"]
            if type(fence) is not int or fence < 1:  # not isinstance(): a boolean is an int
                raise ValueError(f"its fence is {fence!r}, not a whole number above 0")
            if not (window_id is None or (isinstance(window_id, str) and window_id)):
                raise ValueError(f"its window_id is {window_id!r}, not text")
            if document["updated_at"] is None:
                raise TypeError("updated_at is null")
            # Documents of earlier versions have no contact_at and no confirmed_at.
            names = ("fence", "window_id", "updated_at", "updated_by")
            times = {name: document.get(name) for name in ("contact_at", "confirmed_at")}
            values = {"replay_id": document["position"], **{name: document[name] for name in names}, **times}
            return cls(
                stream=stream,
                position=from_document(Position, values),
                run=None if document["run"] is None else from_document(RunIdentity, document["run"]),
                gaps=_gaps(document),
                resets=tuple(_reset_from_document(reset) for reset in document["resets"]),
            )


def gaps_to_json(stream: Stream, gaps: tuple[Gap, ...]) -> str:
    """Return the document of the gaps that no live window recorded."""
    return json.dumps({**_header(GAPS_FORMAT, stream), "gaps": to_document(gaps)}, indent=1)


def gaps_from_json(text: str, stream: Stream) -> tuple[Gap, ...]:
    """Return the gaps in ``text``.

    :raises ValueError: as :meth:`PositionDocument.from_json` does.
    """
    with _field_errors():
        return _gaps(_parsed(text, GAPS_FORMAT, stream))


def _gaps(document: dict[str, Any]) -> tuple[Gap, ...]:
    return tuple(from_document(Gap, gap) for gap in document["gaps"])


def _header(format_: str, stream: Stream) -> dict[str, Any]:
    return {"format": format_, "version": VERSION, "stream": to_document(stream)}


@contextmanager
def _field_errors() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or has the wrong type ({type(error).__name__}: {error})") from error


def _parsed(text: str, expected_format: str, stream: Stream) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != expected_format:
        raise ValueError(f"it is not a document of format {expected_format!r}")
    if document.get("version") != VERSION:
        raise ValueError(
            f"its version is {document.get('version')!r}, but this package reads version {VERSION} "
            "(if a newer airflow-provider-sfstream wrote it, upgrade this worker)"
        )
    if document.get("stream") != to_document(stream):
        raise ValueError(f"it belongs to another stream, {document.get('stream')!r}")
    return document


def _reset_to_document(recorded: RecordedReset) -> dict[str, Any]:
    reset = to_document(recorded.reset)
    reset["from"], reset["to"] = reset.pop("from_replay_id"), reset.pop("to_replay_id")
    return {**reset, "from_window_id": recorded.from_window_id}


def _reset_from_document(document: dict[str, Any]) -> RecordedReset:
    document["from_replay_id"], document["to_replay_id"] = document.pop("from"), document.pop("to")
    from_window_id = document.pop("from_window_id")
    return RecordedReset(from_document(PositionReset, document), from_window_id)
