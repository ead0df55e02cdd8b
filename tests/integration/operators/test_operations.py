"""Procedures of docs/operations.md with real operators: late runs, other orgs, lost stores and lost landings."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError, SalesforceStreamError
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.operators.accept_replay_loss import AcceptReplayLossOperator
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.replay_position import ResetReplayPositionOperator
from airflow_provider_sfstream.operators.restore_replay_position import RestoreReplayPositionOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.lost_positions import listed_losses
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.landed import landed_replay_ids, replay_ids_of
from tests.support.shared_org import OWN_ORG, SharedOrg, connections, org, shared_org
from tests.support.tasks import context_for, error_text, set_connection

__all__ = ["connections", "org", "shared_org"]

GENERIC = "/u/notifications/Orders"
HOUR = 3600

Drain = Callable[..., dict[str, Any]]


@pytest.fixture
def drain(org: SharedOrg, tmp_path: Path) -> Drain:
    runs = iter(range(1, 24))

    def run(**arguments: Any) -> dict[str, Any]:
        number = next(runs)
        landing = {"landing_url": str(tmp_path / "lake"), "replay_store": "table"}
        defaults = {"topic": org.topic, "idle_timeout": 1.0, **landing}
        operator = DrainReplayWindowOperator(task_id="drain", **{**defaults, **arguments})
        return operator.execute(context_for("drain", run_id=f"run-{number}", hour=number))

    return run


def publish(org: SharedOrg, count: int, topic: str | None = None) -> list[bytes]:
    numbers = range(count)
    events = [{"payload": str(n)} if topic == GENERIC else {"Number__c": float(n)} for n in numbers]
    return org.publish(topic or org.topic, events)


def restore(org: SharedOrg, tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    defaults = {"topic": org.topic, "landing_url": str(tmp_path / "lake"), "replay_store": "table"}
    operator = RestoreReplayPositionOperator(task_id="restore", **{**defaults, **arguments})
    return operator.execute(context_for("restore"))


def reset(org: SharedOrg, replay_id: str | None) -> None:
    operator = ResetReplayPositionOperator(
        task_id="reset", topic=org.topic, replay_id=replay_id, reason="test", replay_store="table"
    )
    operator.execute(context_for("reset"))


def stream(org: SharedOrg, topic: str | None = None) -> Stream:
    return Stream(org.org_id, "streaming" if topic == GENERIC else "pubsub", topic or org.topic)


def record(org: SharedOrg, topic: str | None = None) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic or org.topic)]


@OWN_ORG
@pytest.mark.parametrize(("kind", "hours"), [("platform event", 72), ("generic", 24)])
def test_a_run_within_the_retention_loses_nothing_and_a_later_run_fails(
    kind: str, hours: int, org: SharedOrg, drain: Drain, tmp_path: Path
) -> None:
    topic = str(org.generic_channel(GENERIC)["name"]) if kind == "generic" else org.topic
    publish(org, 3, topic)
    assert drain(topic=topic)["event_count"] == 3
    publish(org, 4, topic)
    org.knobs(clock_offset_seconds=(hours - 1) * HOUR)
    assert drain(topic=topic)["event_count"] == 4
    assert landed_replay_ids(tmp_path / "lake", stream(org, topic)) == record(org, topic)

    publish(org, 5, topic)
    org.knobs(clock_offset_seconds=(2 * hours + 1) * HOUR)
    publish(org, 2, topic)
    if kind == "generic":
        error, parts = "PositionAgedOutError", ("accept_quiet_aging=True", "nothing is known to be lost")
    else:
        error, parts = "ReplayIdLostError", ("on_invalid_replay", "or later) cannot be read")
    with pytest.raises(AirflowFailException, match=error) as caught:
        drain(topic=topic)
    assert all(part in error_text(caught.value) for part in parts)
    accepted = drain(topic=topic, on_invalid_replay="earliest")
    assert accepted["event_count"] == 2
    assert accepted["gap"]["since"] is not None
    assert drain(topic=topic)["gap"] is None


def accept(org: SharedOrg, tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    defaults = {"topic": org.topic, "landing_url": str(tmp_path / "lake"), "replay_store": "table", "reason": "known"}
    operator = AcceptReplayLossOperator(task_id="accept", **{**defaults, **arguments})
    context = context_for("accept")
    result = operator.execute(context)
    events = context["outlet_events"][operator._alias].asset_alias_events
    assert [event.extra["gap"] for event in events] == [result]
    return result


@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_the_next_drain_continues_after_an_accepted_loss(
    org: SharedOrg, drain: Drain, tmp_path: Path, start_from: str
) -> None:
    publish(org, 3)
    last = drain()
    org.fault("reset_stream", topic=org.topic)
    publish(org, 2)
    with pytest.raises(AirflowFailException, match="ReplayIdLostError"):
        drain()
    gap = accept(org, tmp_path, start_from=start_from)
    assert (gap["after"], gap["since"]) == (last["through"], last["last_event_time"])
    assert gap["reason"].startswith("accepted by orders.accept")
    assert gap["reason"].endswith(f"to go on from {start_from}: known")
    assert accept(org, tmp_path, start_from=start_from) == gap, "a second acceptance records no second gap"

    gone_on = drain()
    assert gone_on["event_count"] == (2 if start_from == "earliest" else 0)
    assert gone_on["gap"]["after"] == gap["after"]
    assert gone_on["gap"]["reason"] == gap["reason"], "the typed reason, with the user"
    with closing(TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")) as store:
        [listed] = listed_losses(store.gaps(stream(org)))
    assert (listed.since, listed.reason) == (datetime.fromisoformat(gap["since"]), gap["reason"])
    assert drain()["gap"] is None
    # The acceptance was valid for one position only.
    publish(org, 1)
    drain()
    org.fault("reset_stream", topic=org.topic)
    with pytest.raises(AirflowFailException, match="ReplayIdLostError"):
        drain()


def test_a_loss_is_accepted_only_if_salesforce_rejects_the_position(
    org: SharedOrg, drain: Drain, tmp_path: Path
) -> None:
    with pytest.raises(AirflowFailException, match="no position is recorded"):
        accept(org, tmp_path)
    publish(org, 3)
    drain()
    with pytest.raises(AirflowFailException, match="does not refuse the position"):
        accept(org, tmp_path)
    with pytest.raises(AirflowFailException, match="reason is empty"):
        accept(org, tmp_path, reason=" ")
    with pytest.raises(ConfigurationError, match="start_from"):
        accept(org, tmp_path, start_from="somewhere")
    store = open_replay_store("table", "sfstream_replay_store")
    assert store.gaps(stream(org)) == []


def test_fail_on_gap_fails_the_task_after_the_events_are_stored(org: SharedOrg, drain: Drain, tmp_path: Path) -> None:
    publish(org, 3)
    drain()
    org.fault("reset_stream", topic=org.topic)
    new = publish(org, 2)
    arguments = {"on_invalid_replay": "earliest", "fail_on": ["gap"]}
    operator = DrainReplayWindowOperator(
        task_id="drain", topic=org.topic, landing_url=str(tmp_path / "lake"), replay_store="table", **arguments
    )
    with pytest.raises(AirflowFailException, match=r"(?s)EventsLostError.*stored and recorded"):
        operator.execute(context_for("drain", run_id="with a gap"))
    assert landed_replay_ids(tmp_path / "lake", stream(org))[-2:] == new
    cleared = operator.execute(context_for("drain", run_id="with a gap", try_number=2))
    assert (cleared["event_count"], cleared["drained"], cleared["gap"] is None) == (2, False, False)
    assert drain(fail_on=["gap"])["event_count"] == 0


def test_a_refreshed_sandbox_is_another_stream(
    org: SharedOrg, drain: Drain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No keepalive during the test, so that each position is the replay ID of an event, in both orgs.
    org.knobs(keepalive_seconds=120)
    old = publish(org, 3)
    drain(idle_timeout=1.0)
    with SharedOrg.running(tmp_path / "refreshed") as refreshed:
        refreshed.topic = org.topic
        refreshed.define(org.topic.removeprefix("/event/"), Number__c="double")
        new = publish(refreshed, 5)
        stated = refreshed.airflow_connection(organization_id=org.org_id)
        set_connection(monkeypatch, "salesforce_default", **stated)
        with pytest.raises(AirflowFailException, match="organization_id") as caught:
            drain()
        assert refreshed.org_id in str(caught.value)

        set_connection(monkeypatch, "salesforce_default", **refreshed.airflow_connection())
        window = drain(idle_timeout=1.0)
        assert (window["after"], window["event_count"], window["gap"]) == (None, 5, None)
        assert landed_replay_ids(tmp_path / "lake", stream(refreshed)) == new
    assert landed_replay_ids(tmp_path / "lake", stream(org)) == old
    store = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    assert store.read(stream(org)).replay_id == old[-1]
    assert store.read(stream(refreshed)).replay_id == new[-1]
    store.close()


def test_a_new_address_of_the_same_org_is_the_same_stream(
    org: SharedOrg, drain: Drain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(org, 3)
    drain()
    publish(org, 2)
    addresses = {
        "login_url": f"https://localhost:{org.https_port}",
        "pubsub_endpoint": f"127.0.0.1:{org.grpc_tls_port}",
    }
    elsewhere = org.airflow_connection(**addresses)
    assert elsewhere["extra"]["login_url"] != org.airflow_connection()["extra"]["login_url"]
    set_connection(monkeypatch, "salesforce_default", **elsewhere)
    assert drain()["event_count"] == 2
    assert landed_replay_ids(tmp_path / "lake", stream(org)) == record(org)


def test_skip_if_empty_does_not_skip_a_run_with_a_gap(org: SharedOrg, drain: Drain) -> None:
    publish(org, 3)
    drain()
    org.fault("reset_stream", topic=org.topic)
    window = drain(on_invalid_replay="earliest", skip_if_empty=True)
    assert window["event_count"] == 0
    assert window["gap"]["after"] is not None
    publish(org, 1)
    assert drain(on_invalid_replay="earliest")["event_count"] == 1
    with pytest.raises(AirflowSkipException):
        drain(skip_if_empty=True)


def test_a_reset_stream_fails_the_drain_or_is_recorded_as_a_gap(org: SharedOrg, drain: Drain) -> None:
    publish(org, 3)
    drain()
    lost = publish(org, 2)
    org.fault("reset_stream", topic=org.topic)
    kept = publish(org, 4)
    with pytest.raises(AirflowFailException, match="ReplayIdLostError"):
        drain()
    window = drain(on_invalid_replay="earliest")
    assert replay_ids_of(window["manifest_url"]) == kept
    assert lost[0] not in kept
    assert window["gap"]["resumed_at"] == kept[0].hex()


def test_a_lost_database_is_rebuilt_from_the_landing(org: SharedOrg, drain: Drain, tmp_path: Path) -> None:
    for count in (3, 0, 4):
        publish(org, count)
        last = drain()
    for path in tmp_path.glob("replay.db*"):
        path.unlink()
    publish(org, 2)

    restored = restore(org, tmp_path)

    assert (restored["before"], restored["after"], restored["window_id"]) == (None, last["through"], last["window_id"])
    assert restored["live_windows"] == 3
    assert drain()["event_count"] == 2
    assert landed_replay_ids(tmp_path / "lake", stream(org)) == record(org)


def test_a_database_from_an_old_backup_is_updated_from_the_landing(
    org: SharedOrg, drain: Drain, tmp_path: Path
) -> None:
    publish(org, 3)
    drain()
    with sqlite3.connect(tmp_path / "replay.db") as live, sqlite3.connect(tmp_path / "backup.db") as backup:
        live.backup(backup)
    publish(org, 4)
    last = drain()
    for path in tmp_path.glob("replay.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "replay.db")

    assert restore(org, tmp_path)["live_windows"] == 1

    publish(org, 2)
    after = drain()
    assert (after["after"], after["event_count"]) == (last["through"], 2)
    assert landed_replay_ids(tmp_path / "lake", stream(org)) == record(org)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "waits first"])
def test_a_drain_with_a_lost_store_fails_until_the_position_is_restored(
    org: SharedOrg, drain: Drain, tmp_path: Path, waits: bool
) -> None:
    publish(org, 3)
    drain()
    for path in tmp_path.glob("replay.db*"):
        path.unlink()
    publish(org, 1)
    with pytest.raises(AirflowFailException, match=r"(?s)ReplayStoreLostError: .*RestoreReplayPositionOperator"):
        drain(start_from="latest", min_events=1000 if waits else 0)
    with pytest.raises(AirflowFailException, match="ReplayStoreLostError"):
        drain(replay_store="landing")
    restore(org, tmp_path)
    assert drain(start_from="latest")["event_count"] == 1
    assert landed_replay_ids(tmp_path / "lake", stream(org)) == record(org)


def test_a_stream_moves_to_another_store(org: SharedOrg, drain: Drain, tmp_path: Path) -> None:
    publish(org, 3)
    drain(replay_store="landing")
    publish(org, 4)
    before = drain(replay_store="landing")

    restored = restore(org, tmp_path)  # restores into the table

    assert restored["after"] == before["through"]
    publish(org, 1)
    assert drain(replay_store="table")["event_count"] == 1
    assert landed_replay_ids(tmp_path / "lake", stream(org)) == record(org)


def test_a_restore_with_an_organization_id_makes_no_call_to_salesforce(
    org: SharedOrg, drain: Drain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(org, 3)
    drain()
    (tmp_path / "replay.db").unlink()
    stated = org.airflow_connection(organization_id=org.org_id)
    set_connection(monkeypatch, "salesforce_default", **stated)
    org.kill()
    assert restore(org, tmp_path)["live_windows"] == 1


def test_a_lost_landing_is_drained_again(org: SharedOrg, drain: Drain, tmp_path: Path) -> None:
    publish(org, 3)
    first = drain()
    publish(org, 4)
    drain()
    shutil.rmtree(tmp_path / "lake")
    publish(org, 2)
    with pytest.raises(AirflowFailException, match=r"LandingLostError: .*does not contain window"):
        drain()

    reset(org, first["after"])
    window = drain()
    assert replay_ids_of(window["manifest_url"]) == record(org)


def test_a_moved_landing_is_usable_after_a_restore(org: SharedOrg, drain: Drain, tmp_path: Path) -> None:
    publish(org, 3)
    first = drain()
    shutil.move(tmp_path / "lake", tmp_path / "elsewhere")
    moved = str(tmp_path / "elsewhere")
    publish(org, 2)

    assert drain(landing_url=moved)["event_count"] == 2
    assert landed_replay_ids(tmp_path / "elsewhere", stream(org)) == record(org)

    def first_run_again() -> dict[str, Any]:
        operator = DrainReplayWindowOperator(task_id="drain", topic=org.topic, landing_url=moved, replay_store="table")
        return operator.execute(context_for("drain", run_id="run-1", hour=1))

    with pytest.raises(LandingError, match="is not below the landing"):
        first_run_again()
    for path in tmp_path.glob("replay.db*"):
        path.unlink()
    assert restore(org, tmp_path, landing_url=moved)["live_windows"] == 2
    assert first_run_again()["window_id"] == first["window_id"]


def test_files_are_compared_with_their_manifests(org: SharedOrg, drain: Drain, tmp_path: Path) -> None:
    publish(org, 3)
    drain()
    publish(org, 3)
    window = drain()
    verify = example("every file against its checksum")["verify_landing"]
    assert verify(f"file://{tmp_path}/lake", stream(org), window["window_id"]) == 2
    [part] = Path(window["manifest_url"].removeprefix("file://")).parent.glob("*.parquet")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(LandingError, match="has changed since it was written"):
        verify(f"file://{tmp_path}/lake", stream(org), window["window_id"])
    part.unlink()
    with pytest.raises(LandingError, match="could not be read"):
        verify(f"file://{tmp_path}/lake", stream(org), window["window_id"])


def test_the_failure_callback_of_the_guide_pages_for_a_loss_and_warns_otherwise(org: SharedOrg, drain: Drain) -> None:
    sent: list[tuple[str, str]] = []
    callback = example("a callback")
    callback["send"] = lambda severity, text: sent.append((severity, text))
    publish(org, 3)
    drain()
    org.fault("reset_stream", topic=org.topic)
    publish(org, 1)
    with pytest.raises(AirflowFailException) as lost:
        drain()
    org.kill()
    with pytest.raises(SalesforceStreamError) as passing:
        drain(max_seconds=1.0)
    for error in (lost.value, passing.value):
        callback["report_failure"]({**context_for("drain"), "exception": error})
    assert [severity for severity, _ in sent] == ["page", "warn"]
    assert sent[0][1].startswith(f"orders.drain run-1: ReplayIdLostError: {org.topic}")


def example(heading: str) -> dict[str, Any]:
    """Run the Python block of docs/operations.md whose first comment begins with ``heading``; return its namespace."""
    guide = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    [block] = [text for text in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if text.startswith(f"# {heading}")]
    defined: dict[str, Any] = {}
    exec(compile(block, heading, "exec"), defined)
    return defined
