"""Live interval runs that wait on the triggerer until Salesforce confirms the end of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from tests.support.airflow_names import TaskDeferred
from tests.support.hours import hours_ago
from tests.support.interval_runs import (
    TOPIC,
    Make,
    Run,
    make,
    org_with_hours,
    published_ids,
    result_ids,
    run,
    store,
    stream,
)
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.tasks import deferral_of, run_trigger

__all__ = ["make", "run", "store"]


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    """Start an org that confirms the end of a stream long after a drain is idle."""
    with org_with_hours(tmp_path / "org") as local_org:
        local_org.knobs(keepalive_seconds=120)
        yield local_org


def fired_after_confirmation(org: LocalOrg, deferral: TaskDeferred) -> dict[str, Any]:
    """Return the event that the trigger fires when the org confirms the end of the stream soon."""
    org.knobs(keepalive_seconds=0.5)
    try:
        return run_trigger(deferral)
    finally:
        org.knobs(keepalive_seconds=120)


IN_MODE = {"mode": "interval", "wait_for_confirmation": True, "deferrable": True}


def test_a_live_run_waits_for_its_confirmation_on_the_triggerer(
    org: LocalOrg, store: TableReplayStore, run: Run, make: Make
) -> None:
    run("scheduled", 6, 5, mode="interval")
    before = store.read(stream(org))
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral = deferral_of(lambda: operator.execute(context))
    assert deferral.trigger.serialize()[1]["after"] == before.replay_id.hex()
    assert timedelta(minutes=4) < deferral.timeout <= timedelta(minutes=5)
    event = fired_after_confirmation(org, deferral)
    assert (event["reason"], event["event_count"]) == ("quiet", 0)
    calls = len(org.requests())
    result = operator.resume_execution(deferral.method_name, {**deferral.kwargs, "event": event}, context)
    assert result_ids(org, result) == published_ids(org, 4, 3)
    assert result["confirmed_at"] == event["confirmed_at"]
    assert len(org.requests()) == calls, "the resumed task does not confirm the end a second time"
    position = store.read(stream(org))
    assert (position.replay_id.hex(), position.confirmed_at.isoformat()) == (event["through"], event["confirmed_at"])
    assert make("scheduled", 4, 3, **IN_MODE)[0].execute(context) == {**result, "drained": False}


def test_events_during_the_wait_are_drained_and_the_wait_keeps_its_deadline(
    org: LocalOrg, store: TableReplayStore, run: Run, make: Make
) -> None:
    run("scheduled", 6, 5, mode="interval")
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral = deferral_of(lambda: operator.execute(context))
    late = org.publish(TOPIC, [{"Number__c": 100.0, "CreatedDate": hours_ago(3.5).isoformat()}])
    event = run_trigger(deferral)
    assert (event["reason"], event["through"]) == ("events", late[0].hex())
    again = deferral_of(
        lambda: operator.resume_execution(deferral.method_name, {**deferral.kwargs, "event": event}, context)
    )
    assert again.trigger.serialize()[1]["after"] == late[0].hex()
    assert (again.kwargs["give_up_at"], again.timeout < deferral.timeout) == (deferral.kwargs["give_up_at"], True)
    result = operator.resume_execution(
        again.method_name, {**again.kwargs, "event": fired_after_confirmation(org, again)}, context
    )
    assert result_ids(org, result) == published_ids(org, 4, 3)
    assert late[0] in result_ids(org, result)
    assert result["confirmed_at"] is not None


def test_without_a_confirmation_in_time_the_run_returns_its_events_unconfirmed(run: Run, make: Make) -> None:
    run("scheduled", 6, 5, mode="interval")
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral_of(lambda: operator.execute(context))
    result = operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    assert (result["confirmed_at"], result["drained"], result["event_count"] > 0) == (None, True, True)


def test_a_resumed_run_drains_from_a_position_moved_during_the_wait(
    org: LocalOrg, store: TableReplayStore, run: Run, make: Make
) -> None:
    """The confirmation of the trigger is valid only for the position that the trigger started from."""
    run("scheduled", 6, 5, mode="interval")
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral = deferral_of(lambda: operator.execute(context))
    event = fired_after_confirmation(org, deferral)
    late = org.publish(TOPIC, [{"Number__c": 101.0, "CreatedDate": hours_ago(3.4).isoformat()}])
    moved = run("scheduled", 5, 4, mode="interval")
    assert store.read(stream(org)).replay_id == late[0]
    again = deferral_of(
        lambda: operator.resume_execution(deferral.method_name, {**deferral.kwargs, "event": event}, context)
    )
    assert again.trigger.serialize()[1]["after"] == late[0].hex()
    assert late[0] in {id_ for window in moved["windows"] for id_ in replay_ids_of(window["manifest_url"])}
