"""Whatever happens to a stream: each claim of each green run is true by the log of its bus."""

from __future__ import annotations

import pytest

from tests.support.claims import run_scenario


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(2, 50))])
def test_every_claim_of_every_green_run_is_true(seed: int) -> None:
    report = run_scenario(seed)
    assert (report.false, report.lost, report.twice) == ((), 0, 0), f"see benchmarks/claims.py --runs 1 --seed {seed}"
    assert report.green or report.red, "nothing was run"
    assert report.checked.total() or not report.green
