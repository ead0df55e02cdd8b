"""Claims of successful runs under random faults, compared with the log of the event bus."""

from __future__ import annotations

import pytest

from tests.support.claims import HAZARDS, Report, run_scenario

EXHAUSTIVE = [pytest.mark.extended, pytest.mark.exhaustive]
SEEDS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(2, 10)),
    *(pytest.param(seed, marks=EXHAUSTIVE) for seed in range(10, 50)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_claim_of_every_green_run_is_true(seed: int) -> None:
    _check(run_scenario(seed))


@pytest.mark.extended
@pytest.mark.parametrize("hazard", sorted(HAZARDS))
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=EXHAUSTIVE) for seed in (1, 2))])
def test_every_claim_is_true_under_a_single_fault(hazard: str, seed: int) -> None:
    _check(run_scenario(seed, hazards=[hazard]))


def _check(report: Report) -> None:
    assert (report.false_claims, report.lost, report.duplicates) == ((), 0, 0), (
        f"see benchmarks/claims.py --seed {report.seed}"
    )
    assert report.green or report.red, "nothing was run"
    assert report.checked.total() or not report.green
