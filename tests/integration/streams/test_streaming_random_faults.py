"""Random faults against a drain loop on the Streaming API, over and over: nothing lost, nothing twice, in order."""

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
def test_what_landed_is_what_the_org_published(org: LocalOrg, tmp_path: Path, seed: int) -> None:
    outcome = run(org, seed, tmp_path / "lake")
    print(outcome)
    assert outcome.published >= 1_500
    assert outcome.lost == 0, outcome
    assert outcome.duplicates == 0, outcome
    assert outcome.rows_equal, outcome
    assert outcome.reconnects + outcome.failed_drains >= 5, f"too little went wrong to tell: {outcome}"
