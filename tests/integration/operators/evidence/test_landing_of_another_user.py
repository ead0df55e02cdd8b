"""A drain into a folder of another user fails before it contacts Salesforce."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, error_text, set_connection

TOPIC, OTHER = "/event/Order__e", 54_321


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as local_org:
        local_org.define("Order__e", Number__c="double")
        set_connection(monkeypatch, "salesforce_default", **local_org.airflow_connection())
        yield local_org


@pytest.mark.skipif(os.geteuid() != 0, reason="folders of other users are made by root alone")
def test_a_drain_into_a_folder_of_another_user_reads_and_writes_nothing(org: LocalOrg, tmp_path: Path) -> None:
    home = tmp_path / "other"
    home.mkdir(mode=0o755)
    os.chown(home, OTHER, OTHER)
    operator = DrainReplayWindowOperator(
        task_id="drain", topic=TOPIC, landing_url=f"file://{home}/lake", replay_store="landing", start_from="earliest"
    )
    org.admin("DELETE", "/requests")
    with pytest.raises(AirflowFailException) as caught:
        operator.execute(context_for("drain"))
    error = error_text(caught.value)
    for part in ("ConfigurationError", f"{home} belongs to the user {OTHER}", "Nothing was read from Salesforce"):
        assert part in error, part
    assert org.requests() == []
    assert list(home.iterdir()) == []
