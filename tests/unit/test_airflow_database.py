"""Direct use of Airflow's database."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream._airflow import has_database, use_database


def test_task_in_a_scheduler_environment_does_not_use_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_sfstream._airflow._database", [])
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    assert not has_database()
    use_database()
    assert has_database()
