"""Live runs of intervals that wait on the triggerer until Salesforce says that this is the end of the stream."""

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
    given,
    happened,
    make,
    org_with_hours,
    run,
    store,
    stream,
)
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.tasks import deferred, fired

__all__ = ["make", "run", "store"]


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    """An org that names the end of a stream long after a drain is idle."""
    with org_with_hours(tmp_path / "org") as local_org:
        local_org.knobs(keepalive_seconds=120)
        yield local_org


def seen(org: LocalOrg, deferral: TaskDeferred) -> dict[str, Any]:
    """Return what the trigger fires where the org names the end of the stream soon."""
    org.knobs(keepalive_seconds=0.5)
    try:
        return fired(deferral)
    finally:
        org.knobs(keepalive_seconds=120)


IN_MODE = {"mode": "interval", "wait_for_confirmation": True, "deferrable": True}


def test_a_live_run_waits_for_its_confirmation_on_the_triggerer(
    org: LocalOrg, store: TableReplayStore, run: Run, make: Make
) -> None:
    run("scheduled", 6, 5, mode="interval")
    before = store.read(stream(org))
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral = deferred(lambda: operator.execute(context))
    assert deferral.trigger.serialize()[1]["replay_id"] == before.replay_id.hex()
    assert timedelta(minutes=4) < deferral.timeout <= timedelta(minutes=5)
    event = seen(org, deferral)
    assert (event["reason"], event["event_count"]) == ("quiet", 0)
    calls = len(org.requests())
    result = operator.resume_execution(deferral.method_name, {**deferral.kwargs, "event": event}, context)
    assert given(org, result) == happened(org, 4, 3)
    assert result["confirmed_at"] == event["confirmed_at"]
    assert len(org.requests()) == calls, "what was seen is not looked for again"
    position = store.read(stream(org))
    assert (position.replay_id.hex(), position.confirmed_at.isoformat()) == (event["through"], event["confirmed_at"])
    assert make("scheduled", 4, 3, **IN_MODE)[0].execute(context) == {**result, "drained": False}


def test_what_comes_during_that_wait_is_drained_and_the_wait_goes_on_for_the_rest_of_its_time(
    org: LocalOrg, store: TableReplayStore, run: Run, make: Make
) -> None:
    run("scheduled", 6, 5, mode="interval")
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral = deferred(lambda: operator.execute(context))
    late = org.publish(TOPIC, [{"Number__c": 100.0, "CreatedDate": hours_ago(3.5).isoformat()}])
    event = fired(deferral)
    assert (event["reason"], event["through"]) == ("events", late[0].hex())
    again = deferred(
        lambda: operator.resume_execution(deferral.method_name, {**deferral.kwargs, "event": event}, context)
    )
    assert again.trigger.serialize()[1]["replay_id"] == late[0].hex()
    assert (again.kwargs["give_up_at"], again.timeout < deferral.timeout) == (deferral.kwargs["give_up_at"], True)
    result = operator.resume_execution(again.method_name, {**again.kwargs, "event": seen(org, again)}, context)
    assert given(org, result) == happened(org, 4, 3)
    assert late[0] in given(org, result)
    assert result["confirmed_at"] is not None


def test_without_a_confirmation_in_time_the_run_gives_what_it_has_and_records_nothing(run: Run, make: Make) -> None:
    run("scheduled", 6, 5, mode="interval")
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferred(lambda: operator.execute(context))
    result = operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    assert (result["confirmed_at"], result["drained"], result["event_count"] > 0) == (None, True, True)


def test_a_position_that_was_moved_during_the_wait_is_drained_from(
    org: LocalOrg, store: TableReplayStore, run: Run, make: Make
) -> None:
    """What the triggerer saw is true of its position only."""
    run("scheduled", 6, 5, mode="interval")
    operator, context = make("scheduled", 4, 3, **IN_MODE)
    deferral = deferred(lambda: operator.execute(context))
    event = seen(org, deferral)
    late = org.publish(TOPIC, [{"Number__c": 101.0, "CreatedDate": hours_ago(3.4).isoformat()}])
    moved = run("scheduled", 5, 4, mode="interval")
    assert store.read(stream(org)).replay_id == late[0]
    again = deferred(
        lambda: operator.resume_execution(deferral.method_name, {**deferral.kwargs, "event": event}, context)
    )
    assert again.trigger.serialize()[1]["replay_id"] == late[0].hex()
    assert late[0] in {id_ for window in moved["windows"] for id_ in replay_ids_of(window["manifest_url"])}
