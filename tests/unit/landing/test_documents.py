"""JSON documents of dataclasses: each value is read back as it was written, and a value of another type is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from airflow_provider_sfstream.landing.documents import from_document, to_document


@dataclass(frozen=True)
class Content:
    count: int
    is_late: bool
    time: datetime
    replay_id: bytes | None
    kind: Literal["live", "backfill"]
    files: tuple[str, ...] = ()
    wait: timedelta = timedelta(0)


CONTENT = Content(
    1, False, datetime(2026, 11, 20, tzinfo=UTC), bytes(7) + b"\x01", "live", ("a", "b"), timedelta(minutes=1)
)


def test_document_is_read_back_as_it_was_written() -> None:
    assert from_document(Content, json.loads(json.dumps(to_document(CONTENT)))) == CONTENT


@pytest.mark.parametrize(
    "changed",
    [
        {"count": True},  # True equals 1 in Python
        {"count": "1"},
        {"count": 1.0},
        {"is_late": 0},
        {"time": "2026-11-20T00:00:00"},
        {"replay_id": "xyz"},
        {"kind": "other"},
        {"files": [1]},
        {"unknown": 1},
    ],
    ids=str,
)
def test_value_of_another_type_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_document(Content, {**to_document(CONTENT), **changed})
