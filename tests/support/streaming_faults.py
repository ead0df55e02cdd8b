"""Random faults during drains of the Streaming API; landed events are compared with the org's record.

While events are published, a loop drains windows into a landing, each from the end of the previous one, as scheduled
runs do. Meanwhile the org drops polls, loses and truncates responses, returns 500 and 503, deletes sessions, revokes
tokens, and is killed and restarted. The seed determines the faults and their times.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter, WrittenWindow
from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.clients import token_provider
from tests.support.localorg import AdminError, LocalOrg

KINDS = ("push_topic", "generic", "platform_event")
COMPARED = ("replay_id", "payload", "event_id", "schema_id")
_DEADLINE = 600.0
_AHEAD = 500
"""Number of published but not landed events from which on the publisher waits."""


@dataclass
class Outcome:
    """Result of one run. ``faults`` counts the injected faults by kind, ``failed_drains`` the drains that raised."""

    seed: int
    topic: str
    published: int
    landed: int
    lost: int
    duplicates: int
    rows_equal: bool
    windows: int
    reconnects: int
    failed_drains: int
    faults: Counter[str]
    seconds: float
    manifests: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed:3d} {self.topic:28s} published {self.published} landed {self.landed} LOST {self.lost} "
            f"duplicates {self.duplicates} rows equal {self.rows_equal} windows {self.windows} reconnects "
            f"{self.reconnects} failed drains {self.failed_drains} in {self.seconds:.1f} s; faults: {faults}"
        )


def run(org: LocalOrg, seed: int, lake: Path, *, events: int = 1_500) -> Outcome:
    """Publish ``events`` to a new topic while draining it under faults; compare the landed rows with the record."""
    started = time.monotonic()
    random = Random(seed)
    topic = _Topic(org, KINDS[seed % len(KINDS)], seed, events)
    faults = _Faults(org, Random(random.random()))
    lander = _DrainLoop(org, topic.name, lake, Random(random.random()))
    with _thread(topic.publish_all, Random(random.random()), lander) as publisher, _thread(faults.cause) as causing:
        while publisher.is_alive():
            lander.drain_once()
            assert time.monotonic() < started + _DEADLINE, "the publisher did not end"
        faults.over.set()
        causing.join(_DEADLINE)
    org.clear_faults()
    while not lander.drain_once() or lander.stopped_because not in (StopReason.CAUGHT_UP, StopReason.IDLE):
        assert time.monotonic() < started + _DEADLINE, "the drain did not catch up"
    return _compare(seed, topic.name, org.record(topic.name, api="streaming"), lander, faults.caused, started)


def _compare(
    seed: int, topic: str, record: list[dict[str, Any]], lander: _DrainLoop, faults: Counter[str], started: float
) -> Outcome:
    rows = lander.rows()
    landed = Counter(row["replay_id"] for row in rows)
    return Outcome(
        seed=seed,
        topic=topic,
        published=len(record),
        landed=len(rows),
        lost=sum(event["replay_id"] not in landed for event in record),
        duplicates=sum(count - 1 for count in landed.values()),
        rows_equal=[[row[c] for c in COMPARED] for row in rows] == [[event[c] for c in COMPARED] for event in record],
        windows=len(lander.manifests),
        reconnects=lander.reconnects,
        failed_drains=lander.failed,
        faults=faults,
        seconds=time.monotonic() - started,
        manifests=[manifest.window.manifest_url for manifest in lander.manifests],
    )


class _Topic:
    """Topic of one kind and its publisher, which writes records if the topic's events come from records."""

    def __init__(self, org: LocalOrg, kind: str, seed: int, events: int) -> None:
        self._org, self._kind, self._events = org, kind, events
        if kind == "push_topic":
            self.name = str(
                org.push_topic(f"Faults{seed}", f"SELECT Id, Name FROM Account WHERE Site = 'seed {seed}'")["name"]
            )
        elif kind == "generic":
            self.name = str(org.generic_channel(f"/u/faults/{seed}")["name"])
        else:
            self.name = str(org.define(f"Faults{seed}__e", Number__c="double", Note__c="string")["name"])
        self._seed, self._published = seed, 0

    def publish_all(self, random: Random, lander: _DrainLoop) -> None:
        """Publish events in batches of random size. Events of unconfirmed requests may exist or not.

        The publisher waits for the drains, so that they also meet every fault on a slow machine.
        """
        deadline = time.monotonic() + _DEADLINE
        while self._published < self._events and time.monotonic() < deadline:
            if self._published > lander.landed + _AHEAD:
                time.sleep(0.01)
                continue
            portion = min(random.choice((1, 10, 60, 200)), self._events - self._published)
            with suppress(ConnectionError, AdminError, RuntimeError):
                self._publish(portion)
                self._published += portion
            time.sleep(random.uniform(0.01, 0.12))

    def _publish(self, count: int) -> None:
        numbers = range(self._published, self._published + count)
        if self._kind == "push_topic":
            same = {"attributes": {"type": "Account"}, "Site": f"seed {self._seed}"}
            records = [{**same, "Name": f"é {number}"} for number in numbers]
            self._org.rest("POST", "/composite/sobjects", {"records": records, "allOrNone": True})
        elif self._kind == "generic":
            self._org.publish(self.name, [{"payload": f'{number} é "quoted" \\ []{{}}'} for number in numbers])
        else:
            self._org.publish(self.name, [{"Number__c": number, "Note__c": f"note {number}"} for number in numbers])


class _Faults:
    """Injector of random faults, one after the other."""

    def __init__(self, org: LocalOrg, random: Random) -> None:
        self._org, self._random = org, random
        self.over = threading.Event()
        self.caused: Counter[str] = Counter()

    def cause(self) -> None:
        """Inject faults until ``over`` is set."""
        kinds = {
            "drop": (6, lambda: self._fault("cometd_drop", times=2)),
            "drop held": (6, lambda: self._fault("cometd_drop_held")),
            "lost on the wire": (8, self._lose),
            "cut short": (4, lambda: self._fault("cometd_truncate", part=self._random.random() * 0.99)),
            "HTTP error": (6, self._http_error),
            "session killed": (6, self._kill_sessions),
            "too busy": (3, self._too_busy),
            "tokens revoked": (4, self._org.revoke),
            "restart": (1, self._restart),
        }
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        while not self.over.wait(self._random.uniform(0.02, 0.12)):
            (name,) = self._random.choices(names, weights)
            if name == "restart" and self.caused[name] >= 2:
                continue
            with suppress(ConnectionError):
                kinds[name][1]()
                self.caused[name] += 1

    def _fault(self, name: str, **arguments: Any) -> None:
        self._org.fault(name, **arguments)

    def _lose(self) -> None:
        self._fault("cometd_lose", part=self._random.choice((0.0, self._random.random() * 0.99)))

    def _http_error(self) -> None:
        channel = self._random.choice(("/meta/connect", "/meta/connect", "/meta/handshake", "/meta/subscribe"))
        self._fault("cometd_http", status=self._random.choice((500, 503)), channel=channel)

    def _too_busy(self) -> None:
        reason = "503::Server is too busy. Please try your request again later."
        channel = self._random.choice(("/meta/connect", "/meta/handshake", "/meta/subscribe"))
        self._fault("cometd_fail", channel=channel, error="403::Handshake denied", failure_reason=reason)

    def _kill_sessions(self) -> None:
        self._fault("cometd_kill_sessions", how=self._random.choice(("handshake", "no_advice", "disconnect")))

    def _restart(self) -> None:
        self._org.kill()
        self._org.start()


class _DrainLoop:
    """Loop that lands windows. A failed drain commits nothing, and the next drain starts at the same position."""

    def __init__(self, org: LocalOrg, topic: str, lake: Path, random: Random) -> None:
        self._org, self._random = org, random
        self._stream = Stream(org.org_id, "streaming", topic)
        self._catalog = LandingCatalog(Landing.from_url(str(lake)))
        self._after: bytes | StartFrom = StartFrom.EARLIEST
        self._tries = 0
        self.manifests: list[Manifest] = []
        self.reconnects = 0
        self.failed = 0
        self.landed = 0
        self.stopped_because: StopReason | None = None

    def drain_once(self) -> bool:
        """Drain one window; return whether it succeeded."""
        self._tries += 1
        run_identity = RunIdentity("faults", "drain", f"try_{self._tries}", datetime.now(UTC))
        limits = DrainLimits(max_events=self._random.choice((None, 40, 150, 400)), idle_timeout=0.25)
        try:
            with StreamingClient(token_provider(self._org)) as client:
                self._land(client, run_identity, limits)
        except SalesforceStreamError:
            self.failed += 1
            return False
        return True

    def rows(self) -> list[dict[str, Any]]:
        """Return all landed rows, in order."""
        rows: list[dict[str, Any]] = []
        for manifest in self.manifests:
            folder = Path(urlsplit(manifest.window.manifest_url).path).parent
            for file in manifest.files:
                rows += pq.read_table(folder / file.name).to_pylist()
        return rows

    def _land(self, client: StreamingClient, run_identity: RunIdentity, limits: DrainLimits) -> None:
        started_at = datetime.now(UTC)
        window_id = window_id_for(run_identity, "live", None)
        topic = self._stream.topic
        with ParquetWindowWriter(
            self._catalog.landing,
            self._stream,
            window_id,
            attempt="1",
            schema=client.schema,
            payload_encoding=client.payload_encoding,
        ) as writer:
            result = Drain(
                client, writer, topic, self._after, limits, max_failures=30, sleep=_briefly, random=lambda: 0.0
            ).run()
            landed = writer.finish()
        self.stopped_because = result.stop_reason
        self.reconnects += result.reconnects
        if result.event_count:
            self._commit(window_id, run_identity, result, landed, started_at)

    def _commit(
        self,
        window_id: str,
        run_identity: RunIdentity,
        result: DrainResult,
        landed: WrittenWindow,
        started_at: datetime,
    ) -> None:
        after = self._after if isinstance(self._after, bytes) else None
        window = ReplayWindow(
            window_id=window_id,
            kind="live",
            after=after,
            through=result.through,
            event_count=result.event_count,
            first_event_time=landed.first_event_time,
            last_event_time=landed.last_event_time,
            manifest_url=self._catalog.landing.manifest_url(self._stream, window_id),
            run=run_identity,
        )
        if self.manifests:
            window = replace(window, previous_window_id=self.manifests[-1].window.window_id)
        manifest = Manifest(
            stream=self._stream,
            window=window,
            fence=0,
            files=landed.files,
            schemas=landed.schemas,
            payload_bytes=landed.payload_bytes,
            stop_reason=result.stop_reason.value,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            provider_version=__version__,
            payload_encoding="json",
        )
        self.manifests.append(self._catalog.write_manifest(manifest))
        self.landed += result.event_count
        assert result.through is not None
        self._after = result.through


def _briefly(seconds: float) -> None:
    time.sleep(min(seconds, 0.05))


@contextmanager
def _thread(work: Any, *arguments: Any) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    yield thread
    thread.join(_DEADLINE)
    assert not thread.is_alive()
