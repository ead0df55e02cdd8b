"""Replay stores under test with their landings, and values to record in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import (
    Gap,
    ReplayWindow,
    RunIdentity,
    Stream,
    WindowKind,
    window_id_for,
)

MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
_numbers = itertools.count(1)


def minute(number: float) -> datetime:
    """Return the time ``number`` minutes after midnight."""
    return MIDNIGHT + timedelta(minutes=number)


def new_stream(topic: str = "/event/Order__e") -> Stream:
    """Return a stream without records."""
    return Stream("00D000000000001EAA", "pubsub", topic, f"test-{next(_numbers)}")


def run_at(number: float, try_number: int = 1, map_index: int = -1) -> RunIdentity:
    """Return the identity of the run due at ``minute(number)``."""
    return RunIdentity("orders", "drain", f"scheduled__{number}", minute(number), map_index, try_number)


def gap_at(number: float, reason: str = "aged out") -> Gap:
    """Return a gap detected at ``minute(number)``."""
    return Gap(b"\x01", b"\x09", minute(number - 1), minute(number), reason)


class DictVariables:
    """Airflow Variables stored in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def name(self, key: str) -> str:
        return f"the Variable {key!r}"

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self.values if key.startswith(prefix)]

    def set(self, key: str, value: str, description: str) -> None:
        assert description
        self.values[key] = value

    def delete(self, key: str) -> None:
        del self.values[key]


@dataclass
class StoreUnderTest:
    """Replay store and the landing of its windows. ``open`` returns another client of the same store."""

    open: Callable[[], ReplayStore]
    catalog: LandingCatalog
    store: ReplayStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.open()

    def land(
        self,
        stream: Stream,
        position: Position,
        through: bytes | None,
        run: RunIdentity,
        *,
        kind: WindowKind = "live",
        events: tuple[float, float] | None = None,
        covered: tuple[float, float] | None = None,
        contact: float | None = None,
        gap: Gap | None = None,
        counted: bool = True,
    ) -> ReplayWindow:
        """Land a window from ``position``, as a drain does; times are minutes after midnight.

        :param events: times of the first and the last event.
        :param covered: start and end of the covered span.
        :param contact: time of the last answer; ``None``: the end of the covered span.
        :param counted: whether events count from the start of the span on; otherwise from an unknown time.
        """
        after = position.replay_id
        window_id = window_id_for(run, kind, after, position.fence)
        first, last = (None, None) if events is None else (minute(events[0]), minute(events[1]))
        covered_from, covered_until = (None, None) if covered is None else (minute(covered[0]), minute(covered[1]))
        window = ReplayWindow(
            window_id=window_id,
            kind=kind,
            after=after,
            through=through,
            event_count=0 if events is None else 2,
            first_event_time=first,
            last_event_time=last,
            manifest_url=self.catalog.landing.manifest_url(stream, window_id),
            run=run,
            previous_window_id=position.window_id if kind == "live" else None,
            gap=gap,
            covered_from=covered_from,
            covered_until=covered_until,
            contact_at=covered_until if contact is None else minute(contact),
            counts_from=covered_from if counted else None,
        )
        finished_at = max(time for time in (run.run_after, last, covered_until) if time) + timedelta(seconds=30)
        written = self.catalog.write_manifest(
            Manifest(
                stream=stream,
                window=window,
                fence=position.fence,
                files=() if events is None else (WindowFile("part-00000.parquet", 2, 100, "00"),),
                schemas={},
                payload_bytes=0,
                stop_reason="caught_up",
                started_at=run.run_after,
                finished_at=finished_at,
                provider_version="test",
            )
        )
        return replace(written.window, manifest_url=window.manifest_url)

    def advance(
        self,
        stream: Stream,
        through: bytes | None,
        run: RunIdentity,
        *,
        events: tuple[float, float] | None = None,
        covered: tuple[float, float] | None = None,
        **others: Any,
    ) -> ReplayWindow:
        """Land a live window from the recorded position, record the window, and return it."""
        position = self.store.read(stream)
        window = self.land(stream, position, through, run, events=events, covered=covered, **others)
        self.store.advance(stream, position, window)
        return window


def variable_store(folder: Path, variables: DictVariables | None = None) -> StoreUnderTest:
    """Return a Variable store on a dict, with a landing in ``folder``."""
    catalog = LandingCatalog(Landing.from_url(str(folder)))
    shared = DictVariables() if variables is None else variables
    return StoreUnderTest(lambda: DocumentReplayStore(catalog, shared), catalog)


def landing_store(folder: Path) -> StoreUnderTest:
    """Return a store that records positions in a landing in ``folder``."""
    catalog = LandingCatalog(Landing.from_url(str(folder)))
    return StoreUnderTest(lambda: DocumentReplayStore(catalog, PositionFiles(catalog.landing)), catalog)


def table_store(folder: Path, url: Engine | URL | str) -> StoreUnderTest:
    """Return a table store at ``url``, with a landing in ``folder``."""
    return StoreUnderTest(lambda: TableReplayStore(url), LandingCatalog(Landing.from_url(str(folder))))
