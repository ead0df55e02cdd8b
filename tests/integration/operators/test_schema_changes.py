"""What a drain says of schemas that change, against a local org whose events get other fields."""

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
from tests.support.tasks import context_for, set_connection, told

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
    """Run a drain, and see that the asset event says the same of schemas as the result."""

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


def get_a_note(org: SharedOrg) -> None:
    """Give the event a field, and publish one that has it."""
    org.define(event_of(org), Number__c="double", Note__c="string")
    publish(org, Note__c="new")


def test_json_events_of_the_streaming_api_have_schemas_too(org: SharedOrg, drain: Drain) -> None:
    publish(org)
    assert drain("run-1", api="streaming")["schema_changes"] == []
    get_a_note(org)
    [change] = drain("run-2", hour=2, api="streaming")["schema_changes"]
    assert (change["event"], change["added"]) == (event_of(org), ADDED)


def test_a_new_field_is_told_once(org: SharedOrg, drain: Drain, caplog: pytest.LogCaptureFixture) -> None:
    publish(org)
    assert drain("run-1")["schema_changes"] == []
    get_a_note(org)
    result = drain("run-2", hour=2)
    [change] = result["schema_changes"]
    assert (change["event"], change["added"], change["removed"], change["retyped"]) == (event_of(org), ADDED, [], [])
    assert change["before"] != change["schema_id"]
    assert "Note__c added (string (Text))" in caplog.text
    publish(org, Note__c="again")
    assert drain("run-3", hour=3)["schema_changes"] == []
    assert drain("run-2", hour=2) == {**result, "drained": False}, "cleared, a task says the same again"


def test_a_field_that_went_and_one_of_another_type(org: SharedOrg, drain: Drain) -> None:
    org.define(event_of(org), Number__c="double", Note__c="string")
    publish(org, Note__c="first")
    drain("run-1")
    org.define(event_of(org), Number__c="string")
    org.publish(org.topic, [{"Number__c": "one"}])
    [change] = drain("run-2", hour=2)["schema_changes"]
    assert [field["name"] for field in change["removed"]] == ["Note__c"]
    [retyped] = change["retyped"]
    assert (retyped["name"], retyped["from"][:6], retyped["to"][:6]) == ("Number__c", "double", "string")


def test_a_drain_fails_for_it_once_and_everything_is_stored(
    org: SharedOrg, store: TableReplayStore, drain: Drain
) -> None:
    publish(org)
    drain("run-1", fail_on=["schema_change"])
    get_a_note(org)
    with pytest.raises(AirflowFailException, match="SchemaChangedError") as caught:
        drain("run-2", hour=2, fail_on=["schema_change"])
    text = told(caught.value)
    assert f"schemas changed ({event_of(org)}, 1 fields added: Note__c)" in text
    assert "Lost: Nothing: all events are stored, with their schemas." in text
    last = org.record(org.topic)[-1]["replay_id"]
    assert store.read(Stream(org.org_id, "pubsub", org.topic)).replay_id == last
    cleared = drain("run-2", hour=2, fail_on=["schema_change"])
    assert (cleared["event_count"], cleared["drained"]) == (1, False)
    assert cleared["schema_changes"][0]["added"] == ADDED
    publish(org, Note__c="more")
    assert drain("run-3", hour=3, fail_on=["schema_change"])["schema_changes"] == []


def test_an_interval_and_a_backfill_tell_of_what_they_drained(org: SharedOrg, drain: Drain) -> None:
    now = datetime.now(UTC)
    publish(org)
    drain("run-1")
    get_a_note(org)
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


def test_a_schema_that_cannot_be_compared_is_said_to_be_unknown(
    org: SharedOrg, drain: Drain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(org)
    drain("run-1")
    for schema in (tmp_path / "landing").rglob("*.avsc"):
        schema.unlink()
    get_a_note(org)
    with pytest.raises(AirflowFailException, match="whether schemas changed could not be seen"):
        drain("run-2", hour=2, fail_on=["schema_change"])
    assert drain("run-2", hour=2)["schema_changes"] is None
    assert "whether schemas changed is not known" in caplog.text


def test_a_lost_stretch_and_a_changed_schema_are_told_together(org: SharedOrg, drain: Drain) -> None:
    publish(org)
    drain("run-1")
    org.fault("expire", topic=org.topic, replay_id=org.record(org.topic)[-1]["replay_id"].hex())
    get_a_note(org)
    lost = {"on_invalid_replay": "earliest", "fail_on": ["gap", "schema_change"]}
    with pytest.raises(AirflowFailException, match="EventsLostError") as caught:
        drain("run-2", hour=2, **lost)
    assert "Beside that, " in told(caught.value)
    assert "schemas changed" in told(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["gap", "stop"], "fail_on='stop' must be one of 'gap', 'schema_change'"),
        ("gap", r"fail_on='gap' must be a list: fail_on=\['gap'\]"),
    ],
)
def test_another_word_is_refused_when_the_dag_is_parsed(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DrainReplayWindowOperator(task_id="drain", topic="/event/Order__e", landing_url="/lake", fail_on=wrong)
