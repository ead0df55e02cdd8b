"""Answers to the OpenLineage provider; an error in the lineage does not fail the task."""

from __future__ import annotations

import logging

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage

from airflow_provider_sfstream.monitoring.lineage import TellsLineage


class Operator(TellsLineage):
    """Has the lineage, or the error, that it was made with."""

    def __init__(self, lineage: OperatorLineage | Exception) -> None:
        self._lineage = lineage

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        if isinstance(self._lineage, Exception):
            raise self._lineage
        return self._lineage if has_ended else OperatorLineage()


def test_the_lineage_before_the_run_is_not_that_after_it() -> None:
    ended = OperatorLineage(run_facets={"any": None})
    operator = Operator(ended)
    assert operator.get_openlineage_facets_on_start() == OperatorLineage()
    assert operator.get_openlineage_facets_on_complete(None) is ended


def test_a_failure_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    operator = Operator(OSError("https://user:secret-of-ours@host refused"))
    assert operator.get_openlineage_facets_on_complete(None) is None
    assert "The lineage of this task cannot be told: OSError" in caplog.text
    assert "secret-of-ours" not in caplog.text
