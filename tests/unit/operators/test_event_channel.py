"""Arguments of the custom channel operator, checked when the DAG is parsed."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.event_channel import SalesforceEventChannelOperator
from tests.support.airflow_names import DagSerialization

ACCOUNT = "AccountChangeEvent"


def make(**arguments: Any) -> SalesforceEventChannelOperator:
    usual = {"channel": "Sales__chn", "members": [ACCOUNT]}
    return SalesforceEventChannelOperator(task_id="channel", **{**usual, **arguments})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"channel": "Sales"}, "Sales__chn"),
        ({"channel": "ChangeEvents"}, "standard channel"),
        ({"members": []}, "at least one"),
        ({"members": [ACCOUNT, "Order__e"]}, "never both"),
        ({"filters": {"LeadChangeEvent": "x = 1"}}, "LeadChangeEvent"),
        ({"enriched_fields": {"LeadChangeEvent": ["Fax"]}}, "LeadChangeEvent"),
        ({"state": "stopped"}, "state"),
        ({"confirm_removal": "yes"}, "confirm_removal"),
        ({"state": "absent", "channel": "Sales", "confirm_removal": True}, "Sales__chn"),
    ],
)
def test_invalid_values_are_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        make(**arguments)


def test_a_deletion_has_to_be_confirmed() -> None:
    with pytest.raises(ConfigurationError, match=r"Deleting channel Sales__chn.*confirm_removal=True"):
        make(state="absent")
    assert make(state="absent", confirm_removal=True, members=())


@pytest.mark.parametrize(
    "arguments",
    [
        {"channel": "{{ params.channel }}"},
        {"members": "{{ params.members }}"},
        {"members": ["{{ params.member }}"], "filters": {ACCOUNT: "x = 1"}},
        {"filters": {ACCOUNT: "Industry = '{{ params.industry }}'"}},
        {"enriched_fields": {ACCOUNT: ["{{ params.field }}"]}},
    ],
)
def test_templates_are_checked_when_they_are_rendered(arguments: dict[str, Any]) -> None:
    made = make(**arguments)
    assert set(arguments) <= set(made.template_fields)


def test_dag_with_channels_can_be_serialized() -> None:
    with DAG("channels", schedule=None) as dag:
        make(filters={ACCOUNT: "Industry = 'Energy'"}, enriched_fields={ACCOUNT: ["Phone"]})
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_dict.keys() == {"channel"}
