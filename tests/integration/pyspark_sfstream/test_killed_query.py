from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.killed_queries import run
from tests.support.localorg import LocalOrg, org

__all__ = ["org"]


@pytest.mark.extended
@pytest.mark.exhaustive
def test_query_that_is_killed_repeatedly_returns_each_event_exactly_once(org: LocalOrg, tmp_path: Path) -> None:
    """This test kills the query twice; ``benchmarks/killed_query.py`` kills it 20 times."""
    outcome = run(org, tmp_path, kills=2, seed=7, within=8.0)
    assert (outcome.lost, outcome.repeated) == (0, 0)
    assert outcome.events > outcome.kills
