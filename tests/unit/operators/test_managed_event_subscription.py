"""Arguments of the managed event subscription operators, checked when the DAG is parsed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from airflow.sdk import DAG, BaseOperator

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError
from airflow_provider_sfstream.operators.managed_event_subscription import (
    DeleteManagedEventSubscriptionOperator,
    ManagedEventSubscriptionOperator,
)
from tests.support.airflow_names import DagSerialization

CONFIRMED = {"managed_subscription": "Orders", "confirm_position_loss": True}
ARGUMENTS: dict[type[BaseOperator], dict[str, Any]] = {
    ManagedEventSubscriptionOperator: {"managed_subscription": "Orders", "topic": "/event/Order__e"},
    DeleteManagedEventSubscriptionOperator: CONFIRMED,
}


def make(operator: type[BaseOperator], **changes: Any) -> BaseOperator:
    return operator(task_id="it", **{**ARGUMENTS[operator], **changes})


LOSING = [(ManagedEventSubscriptionOperator, {"state": "stopped"}), (DeleteManagedEventSubscriptionOperator, {})]


@pytest.mark.parametrize(("operator", "arguments"), LOSING)
@pytest.mark.parametrize("confirmed", [False, None, "yes", 1])
def test_loss_of_the_position_must_be_confirmed(
    operator: type[BaseOperator], arguments: dict[str, Any], confirmed: Any
) -> None:
    with pytest.raises(ConfigurationError, match=r"Orders.*committed replay ID.*confirm_position_loss=True"):
        make(operator, **arguments, confirm_position_loss=confirmed)
    with pytest.raises(ConfigurationError, match="confirm_position_loss=True"):
        operator(task_id="it", managed_subscription="Orders", **arguments)
    assert make(operator, **arguments, confirm_position_loss=True)


@pytest.mark.parametrize("operator", list(ARGUMENTS))
@pytest.mark.parametrize("bad", ["Not a name", "18x123", "_Orders", "Orders_", "O'Brien", "x" * 81, ""])
def test_invalid_subscription_name_is_refused(operator: type[BaseOperator], bad: str) -> None:
    with pytest.raises(ConfigurationError, match="Nothing was contacted"):
        make(operator, managed_subscription=bad)


@pytest.mark.parametrize(
    ("operator", "changes"),
    [
        (ManagedEventSubscriptionOperator, {"default_replay": "earliest"}),
        (ManagedEventSubscriptionOperator, {"error_recovery_replay": "FAIL"}),
        (ManagedEventSubscriptionOperator, {"state": "RUN"}),
        (ManagedEventSubscriptionOperator, {"visibility_timeout": float("nan")}),
        (DeleteManagedEventSubscriptionOperator, {"visibility_timeout": 0}),
    ],
)
def test_invalid_subscription_arguments_are_refused(operator: type[BaseOperator], changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        make(operator, **changes)


@pytest.mark.parametrize("topic", ["Order__e", "/topic/Orders", "/u/Orders", ""])
def test_topic_outside_the_pubsub_api_is_refused(topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        make(ManagedEventSubscriptionOperator, topic=topic)


@pytest.mark.parametrize("operator", list(ARGUMENTS))
def test_templates_are_checked_when_they_are_rendered(operator: type[BaseOperator]) -> None:
    template = "{{ params.name }}"
    named = {name: template for name in ("topic", "managed_subscription") if name in ARGUMENTS[operator]}
    made = make(operator, **named)
    assert all(getattr(made, name) == template for name in named)
    assert set(named) <= set(made.template_fields)


def test_dag_with_managed_subscriptions_can_be_serialized() -> None:
    with DAG("orders", schedule=None) as dag:
        create = ManagedEventSubscriptionOperator(
            task_id="create", managed_subscription="{{ params.name }}", topic="/event/Order__e"
        )
        created = cast(str, create.output)
        ManagedEventSubscriptionOperator(
            task_id="stop", managed_subscription=created, state="stopped", confirm_position_loss=True
        )
        ManagedEventSubscriptionOperator.partial(task_id="start").expand(managed_subscription=["Orders", "Others"])
        DeleteManagedEventSubscriptionOperator(
            task_id="delete", managed_subscription=created, confirm_position_loss=True
        )
    assert dag.get_task("create").downstream_task_ids == {"stop", "delete"}
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert set(stored.task_ids) == {"create", "stop", "start", "delete"}


def test_only_creation_waits_for_visibility_by_default() -> None:
    assert make(ManagedEventSubscriptionOperator).wait_until_visible is True  # type: ignore[attr-defined]
    assert make(DeleteManagedEventSubscriptionOperator).wait_until_visible is False  # type: ignore[attr-defined]
