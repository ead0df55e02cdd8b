"""Runs on a managed event subscription with kills and faults at every step, compared with the events of the org."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ReplayStoreLostError, SalesforceStreamError, SubscriptionBusyError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.managed_windows import (
    CommittedWindows,
    commit_head,
    drain_managed_window,
    landed_but_uncommitted,
)
from airflow_provider_sfstream.replay_windows.restoring import restore_from_landing
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.managed.source import ManagedSource
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.clients import token_provider
from tests.support.killed import Killed, killed_at
from tests.support.localorg import LocalOrg, wait_until
from tests.support.network import Network

_numbers = count(1)


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.knobs(keepalive_seconds=0.1)
        yield local_org


class Managed:
    """A managed subscription to its own topic, and runs on it. Only landing and store persist between runs."""

    def __init__(self, org: LocalOrg, folder: Path, kind: str = "landing", **settings: str) -> None:
        number = next(_numbers)
        self.org, self.folder, self.kind = org, folder, kind
        self.topic, self.name = f"/event/Managed{number}__e", f"Managed_{number}"
        org.define(f"Managed{number}__e", Number__c="double")
        org.managed_subscription(self.name, self.topic, **settings)
        self.stream = Stream(org.org_id, "pubsub", self.topic, self.name)
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))

    def store(self) -> Any:
        if self.kind == "table":
            return TableReplayStore(f"sqlite:///{self.folder / 'store.db'}")
        return DocumentReplayStore(self.catalog, PositionFiles(self.catalog.landing))

    def publish(self, number: int) -> list[bytes]:
        return self.org.publish(self.topic, [{"Number__c": float(n)} for n in range(number)])

    def run(
        self,
        number: int,
        *,
        max_events: int | None = None,
        idle_timeout: float = 1,
        busy_timeout: float = 20,
        target: str | None = None,
        before_the_end: Callable[[], object] = lambda: None,
        **more: Any,
    ) -> WindowOutcome:
        landed = LandedStream(self.stream, self.catalog, self.store())
        run = RunIdentity("orders", "drain", f"run-{number}", datetime(2026, 11, 20, number, tzinfo=UTC))
        limits = DrainLimits(max_events=max_events, idle_timeout=idle_timeout, max_seconds=60)
        request = WindowRequest(run, limits, start_from=StartFrom.COMMITTED, **{"on_invalid_replay": "latest", **more})
        is_landed = landed_but_uncommitted(landed)
        with (
            self.client(target) as client,
            ManagedSource(
                client, ManagedSubscription(self.name), is_landed=is_landed, busy_timeout=busy_timeout
            ) as source,
        ):
            try:
                return drain_managed_window(landed, request, source=source)
            finally:
                before_the_end()

    def client(self, target: str | None) -> PubSubClient:
        return PubSubClient(token_provider(self.org), endpoint=f"http://{target or self.org.grpc_target}")

    def cut(self, network: Network) -> None:
        """Cut the connection of an open stream of this subscription without closing it."""
        network.forget()
        self.org.fault("managed_half_open", developer_name=self.name)

    def record(self) -> list[bytes]:
        return [event["replay_id"] for event in self.org.record(self.topic)]

    def landed(self) -> list[bytes]:
        """Return the replay IDs of the recorded windows, in order."""
        head = self.store().read(self.stream).window_id
        windows = [] if head is None else list(self.catalog.chain(self.stream, head))
        return [replay_id for manifest in reversed(windows) for replay_id in self.catalog.replay_ids(manifest)]

    def committed(self) -> bytes | None:
        committed: bytes | None = self.org.managed_subscriptions()[self.name]["committed"]
        return committed

    def slot(self) -> str:
        return str(self.org.managed_subscriptions()[self.name]["slot"])


@pytest.mark.parametrize("kind", ["landing", "table"])
def test_each_run_continues_after_the_commit_of_the_previous_run(org: LocalOrg, tmp_path: Path, kind: str) -> None:
    managed = Managed(org, tmp_path, kind)
    managed.publish(250)
    windows = [managed.run(number, max_events=100).manifest.window for number in (1, 2, 3)]
    assert [window.event_count for window in windows] == [100, 100, 50]
    assert managed.landed() == managed.record()
    assert managed.committed() == managed.record()[-1]
    again = managed.run(2)
    assert (again.manifest.window, again.drained) == (windows[1], False)
    managed.publish(7)
    assert managed.run(4).manifest.window.event_count == 7
    assert managed.landed() == managed.record()
    wait_until(lambda: managed.slot() == "free", what="the end of the stream of the last run")


def test_repeated_drains_of_an_idle_subscription_are_empty(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(3)
    org.knobs(keepalive_seconds=120)
    try:
        sizes = [managed.run(number, idle_timeout=1).manifest.window.event_count for number in (1, 2, 3)]
    finally:
        org.knobs(keepalive_seconds=0.1)
    assert sizes == [3, 0, 0]
    assert managed.committed() == managed.record()[-1]


def test_subscription_from_latest_misses_no_event_after_its_first_run(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path, default_replay="LATEST")
    managed.publish(5)
    first = managed.run(1).manifest.window
    assert (first.event_count, first.through is not None) == (0, True)
    published = managed.publish(6)
    assert managed.run(2).manifest.window.event_count == 6
    assert managed.landed() == published
    assert managed.committed() == published[-1]


@pytest.mark.parametrize(("recovery", "landed"), [("earliest", [5, 6, 7, 8, 9]), ("latest", [])])
def test_expired_committed_replay_id_is_recorded_as_a_gap(
    org: LocalOrg, tmp_path: Path, recovery: str, landed: list[int]
) -> None:
    managed = Managed(org, tmp_path, error_recovery_replay=recovery.upper())
    ids = managed.publish(10)
    managed.run(1, max_events=3)
    org.fault("expire_before", topic=managed.topic, replay_id=ids[5].hex())
    outcome = managed.run(2, on_invalid_replay=recovery)
    assert outcome.manifest.window.event_count == len(landed)
    assert managed.landed() == ids[:3] + [ids[n] for n in landed]
    (gap,) = managed.store().gaps(managed.stream)
    assert gap.after == ids[2]
    later = managed.publish(4)
    managed.run(3)
    assert managed.landed()[-4:] == later
    assert len(managed.store().gaps(managed.stream)) == 1


@pytest.mark.extended
def test_expired_committed_replay_id_is_a_gap_on_a_slow_network(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path, error_recovery_replay="LATEST")
    ids = managed.publish(10)
    managed.run(1, max_events=3)
    org.fault("expire_before", topic=managed.topic, replay_id=ids[5].hex())
    with Network(org.grpc_port) as network:
        network.delay(1.75)  # in each direction: a refusal arrives after more than 3 seconds, an earlier fixed timeout
        managed.run(2, target=network.target)
    (gap,) = managed.store().gaps(managed.stream)
    assert gap.after == ids[2]


def test_restarted_subscription_begins_at_its_default_replay(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(5)
    managed.run(1)
    org.managed_subscription(managed.name, managed.topic, state="STOP")
    with pytest.raises(SalesforceStreamError, match="stopped"):
        managed.run(2)
    org.managed_subscription(managed.name, managed.topic, state="RUN")
    assert managed.committed() is None
    managed.publish(2)
    managed.run(3)
    assert managed.committed() == managed.record()[-1]
    assert managed.landed()[-2:] == managed.record()[-2:]


def undisturbed(org: LocalOrg, folder: Path) -> tuple[list[int], bool]:
    managed = Managed(org, folder)
    managed.publish(30)
    sizes = [managed.run(number, max_events=20).manifest.window.event_count for number in (1, 2, 3)]
    return sizes, managed.committed() == managed.record()[-1]


STEPS = [
    (LandingCatalog, "write_manifest"),
    (DocumentReplayStore, "advance"),
    (ManagedSource, "commit"),
    (CommittedWindows, "record"),
    (LandingCatalog, "remove_unlisted"),
]


@pytest.mark.parametrize("retried", [True, False], ids=["the same run tries again", "the next run goes on"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, len(STEPS) + 1))
def test_windows_of_runs_killed_at_any_step_contain_every_event_once(
    org: LocalOrg, tmp_path: Path, nth: int, after: bool, retried: bool
) -> None:
    assert undisturbed(org, tmp_path / "undisturbed") == ([20, 10, 0], True)
    managed = Managed(org, tmp_path / "killed")
    managed.publish(30)
    with killed_at(STEPS, nth, after=after), pytest.raises(Killed):
        managed.run(1, max_events=20)
    if not retried and (nth, after) in ((1, True), (2, False)):  # landed but not recorded, as with a lost store
        with pytest.raises(ReplayStoreLostError):
            managed.run(2)
        now = datetime.now(UTC)
        landed = LandedStream(managed.stream, managed.catalog, managed.store())
        restore_from_landing(landed, now=now, updated_by="somebody")
    numbers = (1, 2, 3) if retried else (2, 3)
    sizes = [managed.run(number, max_events=20).manifest.window.event_count for number in numbers]
    assert managed.landed() == managed.record()
    assert managed.committed() == managed.record()[-1]
    if retried:
        assert sizes == [20, 10, 0]


@pytest.mark.parametrize("fault", ["managed_lose_commit", "managed_lose_acknowledgement"])
def test_lost_commit_or_acknowledgement_is_repeated(org: LocalOrg, tmp_path: Path, fault: str) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(30)
    org.fault(fault, developer_name=managed.name)
    managed.run(1, max_events=20)
    assert managed.committed() == managed.record()[19]
    managed.run(2)
    assert managed.landed() == managed.record()


def test_events_of_several_uncommitted_windows_are_not_landed_again(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(50)
    for number in (1, 2, 3):
        with killed_at([(ManagedSource, "commit")], 1, after=False), pytest.raises(Killed):
            managed.run(number, max_events=10)
    assert managed.committed() is None or managed.committed() in managed.landed()
    managed.run(4)
    assert managed.landed() == managed.record()
    assert managed.committed() == managed.record()[-1]


def test_large_uncommitted_window_is_not_landed_again(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(400)
    with killed_at([(ManagedSource, "commit")], 1, after=False), pytest.raises(Killed):
        managed.run(1, max_events=250)  # a response has at most 100 of them
    assert managed.run(2).manifest.window.event_count == 150
    assert managed.landed() == managed.record()


def test_drain_on_a_cut_network_fails_in_bounded_time_and_loses_no_event(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(25)
    managed.run(1, max_events=10)
    with (
        Network(org.grpc_port) as network,
        killed_at([(ManagedSource, "commit")], 1, after=False),
        pytest.raises(Killed),  # the worker is killed, and Salesforce still sees its connection as open
    ):
        managed.run(2, max_events=10, target=network.target, before_the_end=lambda: managed.cut(network))
    assert managed.slot() == "half_open"
    with pytest.raises(SubscriptionBusyError, match=r"15 minutes"):
        managed.run(2, max_events=10, busy_timeout=2)
    org.knobs(managed_half_open_seconds=0.2)
    try:
        managed.run(2, max_events=10)
        managed.run(3)
    finally:
        org.knobs(managed_half_open_seconds=900)
    assert managed.landed() == managed.record()
    assert managed.committed() == managed.record()[-1]


def test_commit_of_an_already_committed_head_sends_no_request(org: LocalOrg, tmp_path: Path) -> None:
    managed = Managed(org, tmp_path)
    managed.publish(5)
    managed.run(1)
    head = commit_head(LandedStream(managed.stream, managed.catalog, managed.store()), None)  # type: ignore[arg-type]
    assert head == managed.record()[-1]
