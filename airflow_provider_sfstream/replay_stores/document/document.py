"""The JSON document in a Variable: its format, its version, and the errors for invalid documents. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.exceptions import InvalidReplayIdError
from airflow_provider_sfstream.replay_stores.base import Position, PositionReset
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text
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
        position = self.position
        document = {
            "format": FORMAT,
            "version": VERSION,
            "stream": asdict(self.stream),
            "position": _hex(position.replay_id),
            "fence": position.fence,
            "window_id": position.window_id,
            "run": None if self.run is None else {**asdict(self.run), "run_after": self.run.run_after.isoformat()},
            "updated_at": _iso(position.updated_at),
            "updated_by": position.updated_by,
            "contact_at": _iso(position.contact_at),
            "confirmed_at": _iso(position.confirmed_at),
            "gaps": [_gap_to_document(gap) for gap in self.gaps],
            "resets": [_reset_to_document(recorded) for recorded in self.resets],
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str, stream: Stream) -> PositionDocument:
        """Return the document in ``text``.

        :raises ValueError: if it is not a document of this package, has another version or stream, or was edited to an
            invalid position; the message names the fault.
        """
        document = _parsed(text, FORMAT, stream)
        try:
            fence, window_id = document["fence"], document["window_id"]
            if type(fence) is not int or fence < 1:  # not isinstance(): a boolean is an int
                raise ValueError(f"its fence is {fence!r}, not a whole number above 0")
            if not (window_id is None or (isinstance(window_id, str) and window_id)):
                raise ValueError(f"its window_id is {window_id!r}, not text")
            return cls(
                stream=stream,
                position=Position(
                    replay_id=_bytes(document["position"]),
                    fence=fence,
                    window_id=window_id,
                    updated_at=_time(document["updated_at"]),
                    updated_by=str(document["updated_by"]),
                    # Documents of earlier versions do not have these fields.
                    contact_at=_optional_time(document.get("contact_at")),
                    confirmed_at=_optional_time(document.get("confirmed_at")),
                ),
                run=_run_from_document(document["run"]),
                gaps=tuple(_gap_from_document(gap) for gap in document["gaps"]),
                resets=tuple(_reset_from_document(reset) for reset in document["resets"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a field is missing or has the wrong type ({type(error).__name__}: {error})") from error


def gaps_to_json(stream: Stream, gaps: tuple[Gap, ...]) -> str:
    """Return the document of the gaps that no live window recorded."""
    entries = [_gap_to_document(gap) for gap in gaps]
    return json.dumps({"format": GAPS_FORMAT, "version": VERSION, "stream": asdict(stream), "gaps": entries}, indent=1)


def gaps_from_json(text: str, stream: Stream) -> tuple[Gap, ...]:
    """Return the gaps in ``text``.

    :raises ValueError: as :meth:`PositionDocument.from_json` does.
    """
    document = _parsed(text, GAPS_FORMAT, stream)
    try:
        return tuple(_gap_from_document(gap) for gap in document["gaps"])
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
    if document.get("stream") != asdict(stream):
        raise ValueError(f"it belongs to another stream, {document.get('stream')!r}")
    return document


def _gap_to_document(gap: Gap) -> dict[str, Any]:
    return {
        "after": _hex(gap.after),
        "resumed_at": _hex(gap.resumed_at),
        "since": _iso(gap.since),
        "detected_at": gap.detected_at.isoformat(),
        "reason": gap.reason,
        "uncertain": gap.uncertain,
    }


def _gap_from_document(document: dict[str, Any]) -> Gap:
    return Gap(
        after=_bytes(document["after"]),
        resumed_at=_bytes(document["resumed_at"]),
        since=_optional_time(document["since"]),
        detected_at=_time(document["detected_at"]),
        reason=str(document["reason"]),
        uncertain=bool(document.get("uncertain", False)),
    )


def _reset_to_document(recorded: RecordedReset) -> dict[str, Any]:
    return {
        "reset_at": recorded.reset.reset_at.isoformat(),
        "reset_by": recorded.reset.reset_by,
        "reason": recorded.reset.reason,
        "from": _hex(recorded.reset.from_replay_id),
        "to": _hex(recorded.reset.to_replay_id),
        "from_window_id": recorded.from_window_id,
    }


def _reset_from_document(document: dict[str, Any]) -> RecordedReset:
    reset = PositionReset(
        reset_at=_time(document["reset_at"]),
        reset_by=str(document["reset_by"]),
        reason=str(document["reason"]),
        from_replay_id=_bytes(document["from"]),
        to_replay_id=_bytes(document["to"]),
    )
    return RecordedReset(reset, document["from_window_id"])


def _run_from_document(document: dict[str, Any] | None) -> RunIdentity | None:
    return None if document is None else RunIdentity(**{**document, "run_after": _time(document["run_after"])})


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(text: str | None) -> bytes | None:
    # InvalidReplayIdError is no ValueError, and its message is about arguments.
    if text is None:
        return None
    try:
        return replay_id_from_text(text)
    except InvalidReplayIdError as error:
        raise ValueError(f"{text!r} is not a replay ID in hex") from error


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _optional_time(text: str | None) -> datetime | None:
    return None if text is None else _time(text)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"its time {text!r} has no time zone")
    return time
