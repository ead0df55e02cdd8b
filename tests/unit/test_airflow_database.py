"""Who uses Airflow's database itself."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream._airflow import has_database, use_database


def test_a_task_does_not_though_it_inherits_the_surroundings_of_a_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_sfstream._airflow._database", [])
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    assert not has_database()
    use_database()
    assert has_database()
