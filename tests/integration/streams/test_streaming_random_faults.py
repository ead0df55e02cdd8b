"""Random faults against a loop of Streaming API drains: no event is lost, repeated or out of order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.localorg import LocalOrg
from tests.support.streaming_faults import run

SEEDS = range(int(os.environ.get("SFSTREAM_FAULT_SEEDS", "3")))


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.mark.extended
@pytest.mark.parametrize("seed", SEEDS)
def test_landed_events_equal_published_events_despite_random_faults(org: LocalOrg, tmp_path: Path, seed: int) -> None:
    outcome = run(org, seed, tmp_path / "lake")
    print(outcome)
    assert outcome.published >= 1_500
    assert outcome.lost == 0, outcome
    assert outcome.duplicates == 0, outcome
    assert outcome.rows_equal, outcome
    assert outcome.reconnects + outcome.failed_drains >= 5, f"too few faults for a meaningful test: {outcome}"
