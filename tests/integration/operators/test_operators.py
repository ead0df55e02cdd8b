"""Drain, commit and reset operators against a local org and a replay table, with valid and with invalid input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.actions.drain.results import DrainedWindow
from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError, SalesforceStreamError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.replay_position import (
    CommitReplayPositionOperator,
    ResetReplayPositionOperator,
)
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import free_port
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, error_text, set_connection

TOPIC = "/event/Order__e"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", Number__c="double")
        local_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(250)])
        yield local_org


@pytest.fixture
def store(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    database = tmp_path / "replay.db"
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(database))
    table = TableReplayStore(f"sqlite:///{database}")
    yield table
    table.close()


@pytest.fixture
def drain(store: TableReplayStore, tmp_path: Path) -> Callable[..., DrainReplayWindowOperator]:
    def make(**arguments: Any) -> DrainReplayWindowOperator:
        return DrainReplayWindowOperator(
            task_id="drain",
            **{
                "topic": TOPIC,
                "landing_url": str(tmp_path / "landing"),
                "replay_store": "table",
                "idle_timeout": 2.0,
                **arguments,
            },
        )

    return make


def stream(org: LocalOrg) -> Stream:
    return Stream(org.org_id, "pubsub", TOPIC)


def test_drain_commit_and_reset(org: LocalOrg, store: TableReplayStore, drain: Any, tmp_path: Path) -> None:
    record = org.record(TOPIC)
    window = drain(advance="manual", max_events=200).execute(context_for("drain"))
    assert (window["event_count"], window["committed"]) == (200, False)
    assert set(window) == set(DrainedWindow.__annotations__), "the documented keys"
    times = {window["first_event_time"], window["last_event_time"]}
    assert {f"{time[:13]}:00:00" for time in times} <= set(window["event_hours"])
    assert store.read(stream(org)).replay_id is None
    commit = CommitReplayPositionOperator(task_id="commit", window=window, replay_store="table")
    assert commit.execute(context_for("commit"))["replay_id"] == record[199]["replay_id"].hex()
    assert store.read(stream(org)).replay_id == record[199]["replay_id"]
    context = context_for("drain", run_id="run-2", hour=2)
    operator = drain()
    rest = operator.execute(context)
    assert rest["after"] == window["through"]
    assert rest["event_count"] == 50
    assert context["outlet_events"][operator.outlets[0]].extra["event_count"] == 50
    with pytest.raises(AirflowSkipException):
        drain(skip_if_empty=True).execute(context_for("drain", run_id="run-3", hour=3))
    reset = ResetReplayPositionOperator(
        task_id="reset", topic=TOPIC, replay_id=record[9]["replay_id"].hex(), reason="test", replay_store="table"
    )
    assert reset.execute(context_for("reset")) == {
        "before": record[-1]["replay_id"].hex(),
        "after": record[9]["replay_id"].hex(),
    }
    assert [r.reason for r in store.resets(stream(org))] == ["test"]
    assert drain().execute(context_for("drain", run_id="run-4", hour=4))["event_count"] == 240


def test_a_position_in_the_landing_is_committed_by_the_commit_operator(
    org: LocalOrg, store: TableReplayStore, drain: Any, tmp_path: Path
) -> None:
    where = {"replay_store": "landing", "advance": "manual", "subscription": "by hand"}
    window = drain(max_events=10, **where).execute(context_for("drain"))
    commit = CommitReplayPositionOperator(task_id="commit", window=window, replay_store="landing")
    assert commit.execute(context_for("commit"))["replay_id"] == window["through"]
    rest = drain(**where).execute(context_for("drain", run_id="run-2", hour=2))
    assert (rest["after"], rest["event_count"]) == (window["through"], 240)
    with pytest.raises(ConfigurationError, match="'variable', 'table'"):
        ResetReplayPositionOperator(task_id="reset", topic=TOPIC, replay_id=None, reason="-", replay_store="landing")


def test_start_from_a_replay_id_and_until(org: LocalOrg, store: TableReplayStore, drain: Any) -> None:
    record = org.record(TOPIC)
    start = record[99]["replay_id"].hex()
    window = drain(start_from=start, advance="manual").execute(context_for("drain"))
    assert (window["after"], window["event_count"]) == (start, 150)
    commit = CommitReplayPositionOperator(task_id="commit", window=window, replay_store="table")
    commit.execute(context_for("commit"))
    assert store.read(stream(org)).replay_id == record[-1]["replay_id"]
    early = drain(subscription="early", until="2000-01-01T00:00:00+00:00").execute(context_for("drain"))
    assert (early["event_count"], early["stop_reason"]) == (0, "until")


def test_bad_arguments_are_refused_when_the_dag_is_parsed(drain: Any) -> None:
    with pytest.raises(InvalidTopicError, match="/event/"):
        drain(topic="event/Order__e")
    refused: list[dict[str, Any]] = [
        {"replay_store": "redis"},
        {"on_invalid_replay": "ignore"},
        {"advance": "later"},
    ]
    for bad in refused:
        with pytest.raises(ConfigurationError, match=next(iter(bad))):
            drain(**bad)


BAD_RUNS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("unknown topic", {"topic": "/event/Nothing__e"}, {}, "Nothing__e"),
    ("replay id that is not hex", {"start_from": "12345z"}, {}, "hex"),
    ("until without time zone", {"until": "2026-11-20T00:00:00"}, {}, "time zone"),
    ("until that is no time", {"until": "yesterday"}, {}, "ISO 8601"),
    ("limit that is no limit", {"max_events": 0}, {}, "max_events"),
    ("landing with a password", {"landing_url": "s3://key:secret@bucket/x"}, {}, "landing_conn_id"),
    ("landing that cannot be written", {"landing_url": "/proc/nothing/landing"}, {}, "/proc/nothing/landing"),
    ("landing of no filesystem", {"landing_url": "nosuch://bucket/x"}, {}, "nosuch"),
    ("wrong secret", {}, {"consumer_secret": "wrong-secret-value"}, "consumer_secret"),
    ("wrong key", {}, {"consumer_key": "nobody"}, "consumer_key"),
    ("wrong CA", {}, {"tls_ca": "OTHER_CA"}, "tls_ca"),
    ("no such CA file", {}, {"tls_ca": "/nonexistent/ca.pem"}, "tls_ca"),
    ("plaintext to a far address", {}, {"pubsub_endpoint": "http://203.0.113.1:7443"}, "allow_insecure"),
]


@pytest.mark.parametrize(("arguments", "extra", "remedy"), [row[1:] for row in BAD_RUNS], ids=[r[0] for r in BAD_RUNS])
def test_invalid_input_fails_with_the_remedy_and_moves_no_position(
    org: LocalOrg,
    store: TableReplayStore,
    drain: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    arguments: dict[str, Any],
    extra: dict[str, Any],
    remedy: str,
) -> None:
    if extra.get("tls_ca") == "OTHER_CA":
        extra = {**extra, "tls_ca": other_authority(tmp_path)}
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(**extra))
    with pytest.raises((AirflowFailException, SalesforceStreamError)) as caught:
        drain(**arguments).execute(context_for("drain"))
    message = error_text(caught.value)
    assert remedy in message
    secrets = (org.client_secret, "wrong-secret-value", "key:secret")
    assert not any(secret in message + caplog.text for secret in secrets)
    assert store.read(stream(org)).fence == 0
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("manifest.json"))


def test_an_unreachable_endpoint_raises_a_retriable_error(
    org: LocalOrg, store: TableReplayStore, drain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = f"localhost:{free_port()}"
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(pubsub_endpoint=endpoint))
    with pytest.raises(SalesforceStreamError) as caught:
        drain(max_seconds=1).execute(context_for("drain"))
    assert caught.value.retriable
    assert TOPIC in str(caught.value)
    assert store.read(stream(org)).fence == 0


def test_an_invalid_or_foreign_manifest_is_not_committed(
    org: LocalOrg, store: TableReplayStore, drain: Any, tmp_path: Path
) -> None:
    window = drain(advance="manual").execute(context_for("drain"))
    path = Path(window["manifest_url"].removeprefix("file://"))
    good = path.read_text()
    bad_texts = (good[:100], "{}", good.replace('"version": 1', '"version": 99'), "not json")
    for text in bad_texts:
        path.write_text(text)
        with pytest.raises(AirflowFailException, match=r"manifest\.json"):
            CommitReplayPositionOperator(task_id="c", window=window, replay_store="table").execute(context_for("c"))
    for foreign in (None, "x", {}, {"manifest_url": f"file://{tmp_path}/elsewhere/manifest.json"}):
        with pytest.raises(AirflowFailException, match="window is not the result"):
            CommitReplayPositionOperator(task_id="c", window=foreign, replay_store="table").execute(context_for("c"))
    assert store.read(stream(org)).fence == 0


def test_a_reset_requires_a_hex_replay_id_and_a_reason(org: LocalOrg, store: TableReplayStore) -> None:
    for arguments, remedy in (
        ({"replay_id": "zz", "reason": "r"}, "hex"),
        ({"replay_id": None, "reason": " "}, "Set the reason of the reset"),
    ):
        operator = ResetReplayPositionOperator(task_id="r", topic=TOPIC, replay_store="table", **arguments)
        with pytest.raises(AirflowFailException, match=remedy):
            operator.execute(context_for("r"))
    assert store.read(stream(org)).fence == 0


def other_authority(folder: Path) -> str:
    """Return the file of a certificate authority that did not sign the org's certificate."""
    with LocalOrg.running(folder / "other-org") as other:
        return str(other.ca_file)
