"""Schema changes reported by a drain, against a local org whose events change their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, error_text, set_connection

__all__ = ["org", "shared_org"]

ADDED = [{"name": "Note__c", "type": "string (Text)"}]


@pytest.fixture
def store(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    org.knobs(keepalive_seconds=0.3)
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    table = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    yield table
    table.close()


Drain = Callable[..., dict[str, Any]]


@pytest.fixture
def drain(org: SharedOrg, store: TableReplayStore, tmp_path: Path) -> Drain:
    """Return a function that runs a drain and asserts that its asset event has the schema changes of its result."""

    def run(
        run_id: str, *, hour: int = 1, run_fields: dict[str, Any] | None = None, **arguments: Any
    ) -> dict[str, Any]:
        usual = {"topic": org.topic, "landing_url": str(tmp_path / "landing"), "replay_store": "table"}
        operator = DrainReplayWindowOperator(task_id="drain", **{**usual, "idle_timeout": 1.0, **arguments})
        context = context_for("drain", run_id=run_id, hour=hour, **(run_fields or {}))
        result = operator.execute(context)
        event = context["outlet_events"][operator.outlets[0]].extra
        assert event["schema_changes"] == result["schema_changes"]
        return result

    return run


def publish(org: SharedOrg, **fields: Any) -> None:
    org.publish(org.topic, [{"Number__c": 1.0, **fields}])


def event_of(org: SharedOrg) -> str:
    return org.topic.removeprefix("/event/")


def add_note_field(org: SharedOrg) -> None:
    """Add a field to the event definition and publish an event that has it."""
    org.define(event_of(org), Number__c="double", Note__c="string")
    publish(org, Note__c="new")


def test_schema_changes_of_streaming_api_events_are_reported(org: SharedOrg, drain: Drain) -> None:
    publish(org)
    assert drain("run-1", api="streaming")["schema_changes"] == []
    add_note_field(org)
    [change] = drain("run-2", hour=2, api="streaming")["schema_changes"]
    assert (change["event"], change["added"]) == (event_of(org), ADDED)


def test_a_new_field_is_reported_once(org: SharedOrg, drain: Drain, caplog: pytest.LogCaptureFixture) -> None:
    publish(org)
    assert drain("run-1")["schema_changes"] == []
    add_note_field(org)
    result = drain("run-2", hour=2)
    [change] = result["schema_changes"]
    assert (change["event"], change["added"], change["removed"], change["retyped"]) == (event_of(org), ADDED, [], [])
    assert change["before"] != change["schema_id"]
    assert "Note__c added (string (Text))" in caplog.text
    publish(org, Note__c="again")
    assert drain("run-3", hour=3)["schema_changes"] == []
    assert drain("run-2", hour=2) == {**result, "drained": False}, "a cleared task returns the same result"


def test_a_removed_field_and_a_retyped_field_are_reported(org: SharedOrg, drain: Drain) -> None:
    org.define(event_of(org), Number__c="double", Note__c="string")
    publish(org, Note__c="first")
    drain("run-1")
    org.define(event_of(org), Number__c="string")
    org.publish(org.topic, [{"Number__c": "one"}])
    [change] = drain("run-2", hour=2)["schema_changes"]
    assert [field["name"] for field in change["removed"]] == ["Note__c"]
    [retyped] = change["retyped"]
    assert (retyped["name"], retyped["from"][:6], retyped["to"][:6]) == ("Number__c", "double", "string")


def test_fail_on_schema_change_fails_one_drain_after_its_events_are_stored(
    org: SharedOrg, store: TableReplayStore, drain: Drain
) -> None:
    publish(org)
    drain("run-1", fail_on=["schema_change"])
    add_note_field(org)
    with pytest.raises(AirflowFailException, match="SchemaChangedError") as caught:
        drain("run-2", hour=2, fail_on=["schema_change"])
    text = error_text(caught.value)
    assert f"schemas changed ({event_of(org)}, 1 fields added: Note__c)" in text
    assert "Data loss: Nothing: all events are stored, with their schemas." in text
    last = org.record(org.topic)[-1]["replay_id"]
    assert store.read(Stream(org.org_id, "pubsub", org.topic)).replay_id == last
    cleared = drain("run-2", hour=2, fail_on=["schema_change"])
    assert (cleared["event_count"], cleared["drained"]) == (1, False)
    assert cleared["schema_changes"][0]["added"] == ADDED
    publish(org, Note__c="more")
    assert drain("run-3", hour=3, fail_on=["schema_change"])["schema_changes"] == []


def test_interval_runs_and_backfills_report_schema_changes_of_their_events(org: SharedOrg, drain: Drain) -> None:
    now = datetime.now(UTC)
    publish(org)
    drain("run-1")
    add_note_field(org)
    hour = {"data_interval_start": now - timedelta(hours=1), "data_interval_end": now + timedelta(seconds=1)}
    backfill = {"run_type": "backfill", **hour}
    result = drain("backfill", hour=2, run_fields=backfill, reuse=False)
    assert [change["added"] for change in result["schema_changes"]] == [ADDED]
    live = drain("live", hour=3, run_fields=hour, mode="interval")
    assert [change["added"] for change in live["schema_changes"]] == [ADDED]
    org.define(event_of(org), Number__c="double", Other__c="double")
    publish(org)
    with pytest.raises(AirflowFailException, match="SchemaChangedError"):
        drain("next", hour=4, run_fields=hour, mode="interval", reuse=False, fail_on=["schema_change"])


def test_a_schema_change_that_cannot_be_determined_is_reported_as_unknown(
    org: SharedOrg, drain: Drain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(org)
    drain("run-1")
    for schema in (tmp_path / "landing").rglob("*.avsc"):
        schema.unlink()
    add_note_field(org)
    with pytest.raises(AirflowFailException, match="schema changes could not be determined"):
        drain("run-2", hour=2, fail_on=["schema_change"])
    assert drain("run-2", hour=2)["schema_changes"] is None
    assert "schema changes could not be determined" in caplog.text


def test_a_schema_that_did_not_land_is_no_unchanged_schema(org: SharedOrg, drain: Drain) -> None:
    publish(org)
    assert drain("run-1")["schema_changes"] == []
    org.fault("answer_schema", code="", status="NOT_FOUND")
    add_note_field(org)
    with pytest.raises(AirflowFailException, match="schema changes could not be determined") as caught:
        drain("run-2", hour=2, fail_on=["schema_change"])
    assert "Data loss: Nothing: all events are stored, maybe not with their schemas." in error_text(caught.value)
    assert drain("run-2", hour=2)["schema_changes"] is None


def test_a_gap_and_a_schema_change_are_reported_in_one_error(org: SharedOrg, drain: Drain) -> None:
    publish(org)
    drain("run-1")
    org.fault("expire", topic=org.topic, replay_id=org.record(org.topic)[-1]["replay_id"].hex())
    add_note_field(org)
    lost = {"on_invalid_replay": "earliest", "fail_on": ["gap", "schema_change"]}
    with pytest.raises(AirflowFailException, match="EventsLostError") as caught:
        drain("run-2", hour=2, **lost)
    assert "Beside that, " in error_text(caught.value)
    assert "schemas changed" in error_text(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["gap", "stop"], "fail_on='stop' must be one of 'gap', 'schema_change'"),
        ("gap", r"fail_on='gap' must be a list: fail_on=\['gap'\]"),
    ],
)
def test_an_invalid_fail_on_is_refused_when_the_dag_is_parsed(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DrainReplayWindowOperator(task_id="drain", topic="/event/Order__e", landing_url="/lake", fail_on=wrong)
