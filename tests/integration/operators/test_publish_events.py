"""Publishing rows to a local org by a task: events on the bus, recorded results, and retries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.publish_events import PublishEventsOperator
from airflow_provider_sfstream.publishing.rows import EventIds
from tests.support.behind_network import OrgBehindNetwork, behind_network
from tests.support.network import TO_CLIENT, TO_SERVER, TextMatch
from tests.support.secret_sweep import forms, secrets_of
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, error_text, set_connection

__all__ = ["behind_network", "org", "shared_org"]


@pytest.fixture(autouse=True)
def connection(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())


@pytest.fixture
def through_network(behind_network: OrgBehindNetwork, monkeypatch: pytest.MonkeyPatch) -> Iterator[OrgBehindNetwork]:
    """Route the Airflow connection through the simulated network, without TLS, so that the network can read it."""
    endpoint = f"http://{behind_network.grpc_target}"
    fields = behind_network.airflow_connection(pubsub_endpoint=endpoint, login_url=behind_network.https_instance_url)
    set_connection(monkeypatch, "salesforce_default", **fields)
    yield behind_network
    behind_network.grpc.heal()


def publish(
    topic: str, folder: Path, *, try_number: int = 1, run_id: str = "run-1", **arguments: Any
) -> dict[str, Any]:
    operator = PublishEventsOperator(task_id="publish", topic=topic, results_url=str(folder / "results"), **arguments)
    result: dict[str, Any] = operator.execute(context_for("publish", run_id, try_number))
    assert json.loads(json.dumps(result)) == result
    return result


def numbers(org: SharedOrg, topic: str | None = None) -> list[float]:
    return [event["fields"]["Number__c"] for event in org.record(topic or org.topic)]


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"Number__c": float(number)} for number in range(count)]


def lines(folder: str) -> list[dict[str, Any]]:
    files = sorted(Path(folder.removeprefix("file://")).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def event_id(org: SharedOrg, number: int) -> str:
    """Return the event ID that a row with the key ``number`` gets."""
    identity = run_identity(context_for("publish", "run-1"))
    return EventIds(org.org_id, org.topic, identity.key).id_of(f"key {json.dumps(float(number))}")


def test_rows_are_published_once_in_order_with_the_recorded_ids(org: SharedOrg, tmp_path: Path) -> None:
    result = publish(org.topic, tmp_path, rows=numbered(250))
    record = org.record(org.topic)
    assert numbers(org) == [float(number) for number in range(250)]
    assert result == {
        "topic": org.topic,
        "published": 250,
        "already_published": 0,
        "failed": 0,
        "in_doubt": 0,
        "first_replay_id": record[0]["replay_id"].hex(),
        "last_replay_id": record[-1]["replay_id"].hex(),
        "results_url": result["results_url"],
        "failures_url": None,
    }
    found = lines(f"{result['results_url']}/results")
    assert [(line["id"], line["replay_id"]) for line in found] == [
        (event["event_id"], event["replay_id"].hex()) for event in record
    ]
    again = publish(org.topic, tmp_path, rows=numbered(250), try_number=2)
    assert (again["published"], again["already_published"]) == (0, 250)
    assert again["last_replay_id"] == result["last_replay_id"]
    other = publish(org.topic, tmp_path, rows=numbered(1), run_id="run-2")
    assert other["published"] == 1
    assert len(org.record(org.topic)) == 251
    assert len({event["event_id"] for event in org.record(org.topic)}) == 251
    left = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert not [name for name, secret in secrets_of(org).items() for form in forms(secret) if form in left]


def test_landed_events_of_another_topic_are_published_again(org: SharedOrg, tmp_path: Path) -> None:
    other = str(org.define("Copied__e", Amount__c="double", Note__c="text")["name"])
    org.publish(org.topic, numbered(5))
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic=org.topic,
        landing_url=str(tmp_path / "landing"),
        max_events=5,
        replay_store="landing",
    )
    drained = drain.execute(context_for("drain"))
    with pytest.raises(AirflowFailException, match="Copied__e has no field Number__c"):
        publish(other, tmp_path, windows=drained)
    fields = {"Amount__c": "Number__c", "Note__c": "_event_id"}
    assert publish(other, tmp_path, windows=drained, fields=fields)["published"] == 5
    assert publish(other, tmp_path, windows=drained, fields=fields)["already_published"] == 5
    copies, originals = org.record(other), org.record(org.topic)
    assert [copy["fields"]["Amount__c"] for copy in copies] == numbers(org)
    assert [copy["fields"]["Note__c"] for copy in copies] == [event["event_id"] for event in originals]
    assert publish(org.topic, tmp_path, windows=drained, run_id="back")["published"] == 5


def test_a_repeated_publication_of_a_table_publishes_only_the_appended_rows(org: SharedOrg, tmp_path: Path) -> None:
    topic = str(org.define("Priced__e", Price__c="double", At__c="datetime", On__c="date")["name"])
    moment = datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)

    def priced(*ids: str) -> pa.Table:
        rows = [{"Id": id_, "Price__c": Decimal("1.50"), "At__c": moment, "On__c": moment.date()} for id_ in ids]
        return pa.Table.from_pylist(rows)

    table = tmp_path / "prices"
    write_deltalake(table, priced("a", "b"))
    assert publish(topic, tmp_path, table=str(table), key="Id")["published"] == 2
    write_deltalake(table, priced("c"), mode="append")
    result = publish(topic, tmp_path, table=str(table), key="Id", try_number=2)
    assert (result["published"], result["already_published"]) == (1, 2)
    milliseconds = int(moment.timestamp() * 1000)
    day = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    for event in org.record(topic):
        fields = {name: event["fields"][name] for name in ("Price__c", "At__c", "On__c")}
        assert fields == {"Price__c": 1.5, "At__c": milliseconds, "On__c": day}
    assert {line["key"] for line in lines(f"{result['results_url']}/results")} == {"a", "b", "c"}


def test_rejected_rows_are_written_to_a_file_and_fail_the_task_at_its_end(
    org: SharedOrg, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = str(org.define("Noted__e", Note__c="text", Id__c="text")["name"])
    org.knobs(event_bytes=300)
    rows = [{"Id__c": "1", "Note__c": "fine"}, {"Id__c": "2", "Note__c": "secret" * 100}, {"Id__c": "3", "Note__c": 5}]
    with pytest.raises(AirflowFailException, match="2 rows were not published") as caught:
        publish(topic, tmp_path, rows=rows, key="Id__c")
    assert "secretsecret" not in error_text(caught.value) + caplog.text
    (folder,) = (tmp_path / "results").glob("*/*/*/failures/*")
    failures = {failure["key"]: failure for failure in lines(str(folder))}
    assert {key: failure["error"] for key, failure in failures.items()} == {"2": "PublishError", "3": "SchemaError"}
    assert failures["2"]["values"] == rows[1]
    assert str(folder) in error_text(caught.value)
    result = publish(topic, tmp_path, rows=rows, key="Id__c", on_failure="continue")
    assert (result["already_published"], result["failed"]) == (1, 2)
    assert len(lines(result["failures_url"])) == 2
    org.reset_knobs()
    mended = [*rows[:2], {"Id__c": "3", "Note__c": "five"}]
    assert publish(topic, tmp_path, rows=mended, key="Id__c")["published"] == 2
    assert [event["fields"]["Id__c"] for event in org.record(topic)] == ["1", "2", "3"]


def test_an_exhausted_allocation_fails_the_task_and_the_next_try_publishes_the_rest(
    org: SharedOrg, tmp_path: Path
) -> None:
    org.knobs(publish_quota=org.admin("GET", "/org")["published"] + 230)
    with pytest.raises(AirflowFailException, match="QuotaExceededError"):
        publish(org.topic, tmp_path, rows=numbered(450))
    assert len(org.record(org.topic)) == 230
    with pytest.raises(AirflowFailException, match="AllocationReserveError"):
        publish(org.topic, tmp_path, rows=numbered(10), run_id="run-2", allocation_reserve=1)
    org.reset_knobs()
    assert publish(org.topic, tmp_path, rows=numbered(450))["already_published"] == 230
    assert numbers(org) == [float(number) for number in range(450)]


def test_rows_that_differ_from_the_first_try_are_refused_before_any_request(org: SharedOrg, tmp_path: Path) -> None:
    publish(org.topic, tmp_path, rows=numbered(2))
    for others in ({"rows": numbered(3)}, {"rows": numbered(2), "key": "Number__c"}):
        with pytest.raises(AirflowFailException, match="differ from the first try of this run"):
            publish(org.topic, tmp_path, **others)
    assert len(org.record(org.topic)) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rows": [{"Nothing__c": 1}]}, "has no field Nothing__c"),
        ({"rows": [{"Number__c": 1.0}], "key": "Id"}, "lack the columns Id"),
        ({"rows": [{"Number__c": 1.0}], "fields": {"Number__c": "Amount"}}, "lack the columns Amount"),
        ({"rows": "[]"}, "list of dicts"),
        ({"table": "/nowhere"}, "/nowhere is neither a Delta table"),
    ],
)
def test_invalid_rows_or_arguments_are_refused_before_anything_is_written(
    org: SharedOrg, tmp_path: Path, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(AirflowFailException, match=text):
        publish(org.topic, tmp_path, **arguments)
    assert org.record(org.topic) == []
    assert not (tmp_path / "results").exists()


def test_a_channel_cannot_be_published_to(org: SharedOrg, tmp_path: Path) -> None:
    org.channel("Some__chn", [org.topic.removeprefix("/event/")])
    with pytest.raises(
        AirflowFailException, match="PublishError: /event/Some__chn: this user cannot publish to the topic"
    ):
        publish("/event/Some__chn", tmp_path, rows=numbered(1))


def test_events_whose_response_was_lost_are_found_on_the_bus(
    org: SharedOrg, tmp_path: Path, through_network: OrgBehindNetwork
) -> None:
    lost = TextMatch(event_id(org, 250).encode(), TO_CLIENT, before=True)
    rule = through_network.grpc.at(lost, lambda connection: connection.reset())
    result = publish(org.topic, tmp_path, rows=numbered(450), key="Number__c")
    assert rule.done == 1
    assert (result["published"], result["in_doubt"]) == (450, 0)
    assert numbers(org) == [float(number) for number in range(450)]
    assert len(org.requests("grpc", "Publish")) == 3
    settled = {line["key"]: line["replay_id"] for line in lines(f"{result['results_url']}/results")}
    assert settled == {str(event["fields"]["Number__c"]): event["replay_id"].hex() for event in org.record(org.topic)}


def test_events_whose_request_was_lost_in_the_first_run_are_in_doubt(
    org: SharedOrg, tmp_path: Path, through_network: OrgBehindNetwork
) -> None:
    lost = TextMatch(event_id(org, 3).encode(), TO_SERVER, before=True)
    through_network.grpc.at(lost, lambda connection: connection.reset())
    with pytest.raises(
        AirflowFailException, match=r"PublishOutcomeUnknownError: .*whether 5 events were published"
    ) as caught:
        publish(org.topic, tmp_path, rows=numbered(5), key="Number__c")
    assert "publish.md#events-in-doubt" in error_text(caught.value)
    again = publish(org.topic, tmp_path, rows=numbered(5), key="Number__c", on_unknown_outcome="publish_again")
    assert again["published"] == 5
    assert numbers(org) == [float(number) for number in range(5)]


TASK = """
import json, sys
from datetime import UTC, datetime
from types import SimpleNamespace
from airflow_provider_sfstream.operators.publish_events import PublishEventsOperator
task = dict(dag_id="orders", task_id="publish", run_id="run-1", map_index=-1, try_number=1)
run = dict(run_id="run-1", run_after=datetime(2026, 11, 20, 1, tzinfo=UTC))
context = dict(ti=SimpleNamespace(**task), dag_run=SimpleNamespace(**run))
print("begun", flush=True)
PublishEventsOperator(task_id="publish", **json.loads(sys.argv[1])).execute(context)
"""


def test_kill_9_before_a_response_arrives_publishes_no_event_twice(
    org: SharedOrg, tmp_path: Path, through_network: OrgBehindNetwork
) -> None:
    """Salesforce published the third request, but the process was killed before it received the response."""
    pq.write_table(pa.table({"Number__c": [float(number) for number in range(900)]}), tmp_path / "rows.parquet")
    source = {"table": str(tmp_path / "rows.parquet"), "key": "Number__c"}
    held = threading.Event()

    def hold(_: Any) -> None:
        through_network.grpc.silence()
        held.set()

    through_network.grpc.at(TextMatch(event_id(org, 450).encode(), TO_CLIENT, before=True), hold)
    arguments = {"topic": org.topic, "results_url": str(tmp_path / "results"), **source}
    with subprocess.Popen([sys.executable, "-c", TASK, json.dumps(arguments)]) as process:
        assert held.wait(120)
        process.kill()
    through_network.grpc.heal()
    assert len(org.record(org.topic)) == 600
    result = publish(org.topic, tmp_path, try_number=2, **source)
    assert (result["published"], result["already_published"], result["in_doubt"]) == (300, 600, 0)
    assert numbers(org) == [float(number) for number in range(900)]


def test_the_hook_publishes_events(org: SharedOrg) -> None:
    results = SalesforcePubSubHook().publish(org.topic, numbered(3))
    assert [result.replay_id for result in results] == [event["replay_id"] for event in org.record(org.topic)]
    assert numbers(org) == [0.0, 1.0, 2.0]
