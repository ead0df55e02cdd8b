from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.maintain_tables import LEAST_RETENTION, MaintainTablesOperator
from airflow_provider_sfstream.tables.maintenance.options import (
    LEAST_RETENTION_HOURS,
    RETENTION_HOURS,
    TARGET_BYTES,
    MaintenanceOptions,
)
from airflow_provider_sfstream.tables.spark_apps import maintain

CONTEXT = {
    "ti": SimpleNamespace(dag_id="d", task_id="maintain", run_id="r", map_index=-1, try_number=2),
    "dag_run": SimpleNamespace(run_after=datetime(2026, 1, 1, tzinfo=UTC)),
}


def submitted(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> MaintenanceOptions:
    """Return what the job makes of what an operator gives it."""
    given: list[str] = []
    operator = MaintainTablesOperator(task_id="maintain", **arguments)
    monkeypatch.setattr(operator, "submit", lambda _, arguments: given.extend(arguments))
    operator.execute(CONTEXT)  # type: ignore[arg-type]
    return maintain.parse_arguments([*given, "--output", operator.output_url])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"retention": timedelta(hours=23)}, "retention=.* must be a timedelta of at least one day.*at work"),
        ({"retention": 168}, "retention=168 must be a timedelta"),
        ({"target_file_bytes": 0}, "target_file_bytes=0 must be a whole number above zero"),
        ({"application": "x"}, "application_args are set by this operator"),
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        MaintainTablesOperator(task_id="maintain", output_url="s3://lake", **arguments)


def test_the_job_gets_what_the_operator_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"retention": timedelta(days=2, minutes=1), "target_file_bytes": 1 << 20}
    options = submitted(monkeypatch, output_url="s3://lake/tables", **arguments)
    assert (options.output, options.retention_hours, options.target_file_bytes) == ("s3://lake/tables", 49, 1 << 20)
    assert options.job == "d.maintain run r try 2"


def test_operator_and_job_agree_on_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    options = submitted(monkeypatch, output_url="s3://lake")
    assert (options.retention_hours, options.target_file_bytes) == (RETENTION_HOURS, TARGET_BYTES)
    assert timedelta(hours=LEAST_RETENTION_HOURS) == LEAST_RETENTION


def test_an_output_that_carries_a_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="output_url carries a password"):
        submitted(monkeypatch, output_url="s3://key:secret@lake/tables")
    assert "output_url" in MaintainTablesOperator.template_fields
