"""Operators of managed event subscriptions against a local org: life cycle of a subscription and repeated tries."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ServiceUnavailableError, SubscriptionBusyError
from airflow_provider_sfstream.hooks.managed_event_subscription import wait_until_seen
from airflow_provider_sfstream.operators.managed_event_subscription import (
    DeleteManagedEventSubscriptionOperator,
    ManagedEventSubscriptionOperator,
)
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from tests.support.clients import pubsub_client
from tests.support.localorg import LocalOrg, wait_until
from tests.support.rest_proxy import RestProxy
from tests.support.tasks import context_for, error_text, set_connection

TOPIC = "/event/Order__e"
OTHER_TOPIC = "/event/Invoice__e"
REPOSITORY = Path(__file__).parents[3]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        org.define("Order__e", Number__c="double")
        org.define("Invoice__e", Number__c="double")
        org.publish(TOPIC, [{"Number__c": float(n)} for n in range(10)])
        yield org


@pytest.fixture
def org(running_org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    set_connection(monkeypatch, "salesforce_default", **running_org.airflow_connection())
    yield running_org
    running_org.clear_faults()
    running_org.reset_knobs()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll the Pub/Sub API at shorter intervals than a real Salesforce org."""
    defaults = wait_until_seen.__kwdefaults__
    monkeypatch.setitem(defaults, "interval", 0.1)
    monkeypatch.setitem(defaults, "silence", 0.5)


@pytest.fixture
def name() -> str:
    return f"Orders_{next(_numbers)}"


def create(name: str, **arguments: Any) -> ManagedEventSubscriptionOperator:
    return ManagedEventSubscriptionOperator(
        task_id="create", **{"managed_subscription": name, "topic": TOPIC, **arguments}
    )


def existing(name: str, **arguments: Any) -> ManagedEventSubscriptionOperator:
    return ManagedEventSubscriptionOperator(task_id="existing", managed_subscription=name, **arguments)


STOPPED: dict[str, Any] = {"state": "stopped", "confirm_position_loss": True}


def run(operator: BaseOperator, **context: Any) -> dict[str, Any]:
    """Run a task as Airflow does, including its templates and the serialisation of its result."""
    full = {**context_for(operator.task_id, **context), "params": {"topic": TOPIC}}
    operator.render_template_fields(full)
    result = operator.execute(full)
    assert json.loads(json.dumps(result)) == result
    return dict(result)


def commit_everything(org: LocalOrg, name: str) -> bytes:
    """Read all events of a subscription as a consumer does; commit the last one and return its replay ID."""
    last: bytes = org.record(TOPIC)[-1]["replay_id"]

    def consume() -> bool:
        try:
            with (
                pubsub_client(org) as client,
                client.managed_subscribe(ManagedSubscription(name), limit=100, idle_timeout=5.0) as stream,
            ):
                while last not in (next(stream) or _NOTHING).replay_ids:
                    pass
                stream.commit(last)
                stream.wait_for_commit(last, 10.0)
        except SubscriptionBusyError:
            return False
        return True

    wait_until(consume, what="the subscription being free")
    return last


class _Nothing:
    replay_ids: list[bytes] = []


_NOTHING = _Nothing()


def shown(org: LocalOrg, name: str) -> dict[str, Any]:
    return org.managed_subscriptions()[name]


def writes(org: LocalOrg) -> list[str]:
    """Return method and path of each request that changed a record."""
    return [each["method"] for each in org.requests("http") if "/tooling/sobjects/" in each["method"]]


def subscribe_calls(org: LocalOrg) -> int:
    """Return the number of ManagedSubscribe calls."""
    return len([each for each in org.requests("grpc") if each["method"] == "ManagedSubscribe"])


def test_a_subscription_is_created_changed_stopped_started_and_deleted(org: LocalOrg, name: str) -> None:
    """The tasks of one DAG run create, consume, change, stop, start and delete a subscription."""
    org.knobs(managed_visibility_seconds=0.3)
    created = run(create(name, topic="{{ params.topic }}"))
    assert created == {
        "id": shown(org, name)["id"],
        "developer_name": name,
        "label": name.replace("_", " "),
        "topic_name": TOPIC,
        "default_replay": "EARLIEST",
        "error_recovery_replay": "EARLIEST",
        "state": "RUN",
        "version": created["version"],
        "changed": True,
    }
    assert shown(org, name)["visible"]
    committed = commit_everything(org, name)
    assert shown(org, name)["committed"] == committed

    asked = subscribe_calls(org)
    changed = run(existing(f"{{{{ '{created['id']}' }}}}", subscription_label="Sales", default_replay="LATEST"))
    assert subscribe_calls(org) == asked, (
        "the Pub/Sub API does not show when new settings apply, so the task does not poll it"
    )
    assert changed == {**created, "label": "Sales", "default_replay": "LATEST"}
    wait_until(lambda: shown(org, name)["visible"])
    assert shown(org, name)["committed"] == committed, "the committed position is unchanged"

    assert run(existing(name, **STOPPED)) == {**changed, "state": "STOP"}
    assert shown(org, name)["visible"]
    assert shown(org, name)["committed"] is None

    assert run(existing(created["id"])) == changed
    assert shown(org, name)["visible"]
    assert shown(org, name)["committed"] is None

    delete = DeleteManagedEventSubscriptionOperator(
        task_id="delete", managed_subscription=name, confirm_position_loss=True, wait_until_visible=True
    )
    assert run(delete) == {
        "managed_subscription": name,
        "id": created["id"],
        "developer_name": name,
        "topic_name": TOPIC,
        "changed": True,
    }
    assert name not in org.managed_subscriptions()
    assert run(delete) == {
        "managed_subscription": name,
        "id": None,
        "developer_name": None,
        "topic_name": None,
        "changed": False,
    }


def test_cleared_tasks_change_nothing(org: LocalOrg, name: str) -> None:
    operators = [create(name), existing(name, error_recovery_replay="EARLIEST"), existing(name)]
    first = run(operators[0])
    before, asked = writes(org), subscribe_calls(org)
    assert asked
    for operator in operators:
        assert run(operator) == {**first, "changed": False}
    assert writes(org) == before
    assert subscribe_calls(org) == asked, (
        "an unchanged subscription is not polled, since a poll would disturb its consumer"
    )
    stop = existing(name, **STOPPED)
    assert run(stop)["changed"]
    assert not run(stop)["changed"]
    assert len(writes(org)) == len(before) + 1


def test_different_settings_are_changed_and_logged_but_another_topic_is_refused(
    org: LocalOrg, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(create(name))
    committed = commit_everything(org, name)
    wait_until(lambda: shown(org, name)["slot"] == "free", what="the end of the consumer's stream")
    before = shown(org, name)
    with pytest.raises(AirflowFailException, match=rf"{name}.*on {TOPIC} exists already.*{OTHER_TOPIC}"):
        run(create(name, topic=OTHER_TOPIC, default_replay="LATEST"))
    assert shown(org, name) == before
    assert run(create(name, default_replay="LATEST")) == {**first, "default_replay": "LATEST"}
    assert "default_replay 'EARLIEST' -> 'LATEST'" in "".join(capsys.readouterr())
    assert shown(org, name)["committed"] == committed, "the committed position is unchanged"


def test_the_next_try_waits_for_the_subscription_that_the_first_try_created(org: LocalOrg, name: str) -> None:
    org.knobs(managed_visibility_seconds=600)
    impatient = create(name, visibility_timeout=0.3)
    with pytest.raises(ServiceUnavailableError, match=r"(?s)within 0\.3 seconds.*Run the task again"):
        run(impatient)
    with pytest.raises(ServiceUnavailableError):
        run(impatient, try_number=2)
    org.knobs(managed_visibility_seconds=0)
    assert run(impatient, try_number=3)["changed"] is False
    assert writes(org)[-1].startswith("POST"), "only the first try created the subscription"


def test_the_next_try_completes_a_change_whose_response_was_lost(
    org: LocalOrg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The org applies each change, but its response is lost."""
    with RestProxy.running(org.instance_url) as proxy:
        extra = {"access_token": org.token(), "instance_url": proxy.url, "pubsub_endpoint": f"http://{org.grpc_target}"}
        set_connection(monkeypatch, "salesforce_default", conn_type="salesforce", extra=extra)
        for method, operator in (
            ("POST", create(name)),
            ("PATCH", existing(name, default_replay="LATEST")),
            ("PATCH", existing(name, **STOPPED)),
            ("PATCH", existing(name)),
            (
                "DELETE",
                DeleteManagedEventSubscriptionOperator(
                    task_id="delete", managed_subscription=name, confirm_position_loss=True
                ),
            ),
        ):
            proxy.answer(method, "/tooling/sobjects/", 0, forwards=True, breaks_off=True)
            with pytest.raises(ServiceUnavailableError, match="A retry is safe"):
                run(operator)
            before = writes(org)
            assert run(operator, try_number=2)["changed"] is False
            assert writes(org) == before


def test_a_subscription_to_a_topic_missing_in_the_org_is_refused(org: LocalOrg, name: str) -> None:
    with pytest.raises(AirflowFailException, match=f"{name} on /event/Nothing__e.*topicName"):
        run(create(name, topic="/event/Nothing__e"))
    assert name not in org.managed_subscriptions()


@pytest.mark.parametrize("arguments", [{}, {"default_replay": "LATEST"}, STOPPED], ids=str)
def test_a_missing_managed_subscription_is_refused(org: LocalOrg, arguments: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match=r"(?s)None_such.*ManagedEventSubscriptionOperator\(topic="):
        run(existing("None_such", **arguments))


def test_templates_are_validated_after_rendering(org: LocalOrg) -> None:
    with pytest.raises(AirflowFailException, match="InvalidTopicError"):
        run(create("Orders_templated", topic="{{ 'Order__e' }}"))
    with pytest.raises(AirflowFailException, match="'not a name'"):
        run(existing("{{ 'not a name' }}"))


def test_results_logs_and_errors_contain_no_secret(
    org: LocalOrg, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(create(name))
    with pytest.raises(AirflowFailException) as raised:
        run(create(name, topic=OTHER_TOPIC))
    out, err = capsys.readouterr()
    output = f"{result} {error_text(raised.value)} {out} {err}"
    assert org.client_secret not in output
    assert "00D" not in output.replace(org.org_id, ""), "no access token"


@pytest.mark.extended
def test_a_dag_of_managed_subscription_operators_runs_in_airflow(org: LocalOrg, tmp_path: Path) -> None:
    """Airflow runs the DAG twice with its own database, rendered templates and XComs."""
    dag_file = tmp_path / "dags" / "managed_subscription_dag.py"
    dag_file.parent.mkdir()
    shutil.copy(REPOSITORY / "tests" / "support" / dag_file.name, dag_file)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_CONN_SALESFORCE_DEFAULT": os.environ["AIRFLOW_CONN_SALESFORCE_DEFAULT"],
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(REPOSITORY),
    }

    def run_python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    run_python("-m", "airflow", "db", "migrate")
    results = tmp_path / "results.json"
    printed = run_python(str(dag_file), str(results))
    created, updated, stopped, started, deleted = json.loads(results.read_text())
    assert (created["developer_name"], created["topic_name"]) == ("Orders", TOPIC)
    assert created["error_recovery_replay"] == "LATEST"
    assert updated == {**created, "label": "Sales for managed_subscription"}
    assert stopped == {**updated, "state": "STOP"}
    assert started == updated
    assert deleted["id"] == created["id"]
    assert "Orders" not in org.managed_subscriptions()
    assert printed.count("Deleted managed event subscription Orders") == 2
    assert org.client_secret not in printed
