from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.maintain_tables import MaintainTablesOperator
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig


def submitted(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> MaintenanceConfig:
    """Return the config that an operator submits."""
    configs: list[MaintenanceConfig] = []
    operator = MaintainTablesOperator(task_id="maintain", **arguments)
    monkeypatch.setattr(operator, "run_job", lambda _, config: configs.append(config))
    operator.execute({})  # type: ignore[typeddict-item]
    return configs[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"retention": timedelta(hours=23)}, "retention=.* must be a timedelta of at least one day.*running job"),
        ({"retention": 168}, "retention=168 must be a timedelta"),
        ({"target_file_bytes": 0}, "target_file_bytes=0 must be a whole number above zero"),
        ({"application": "x"}, "This operator sets application and application_args"),
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        MaintainTablesOperator(task_id="maintain", output_url="s3://lake", **arguments)


def test_job_config_has_the_arguments_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"retention": timedelta(days=2, minutes=1), "target_file_bytes": 1 << 20}
    config = submitted(monkeypatch, output_url="s3://lake/tables", **arguments)
    assert (config.retention_hours, config.target_file_bytes) == (49, 1 << 20)


def test_operator_and_job_have_the_same_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert submitted(monkeypatch, output_url="s3://lake") == MaintenanceConfig(output_url="")


def test_an_output_that_carries_a_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="output_url contains a password"):
        submitted(monkeypatch, output_url="s3://key:secret@lake/tables")
    assert "output_url" in MaintainTablesOperator.template_fields
