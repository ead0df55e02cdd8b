"""Random changes between the steps of a refresh: every value that differs from the org is reported."""

from __future__ import annotations

import random

import pytest

from tests.support.model_world import ModelOrg, ModelReplica

SEEDS = 1_000


def run(seed: int) -> None:
    shape = random.Random(seed)
    org = ModelOrg(shape)
    replica = ModelReplica(org, hard=seed % 2 == 1)
    for _ in range(shape.randint(3, 8)):
        for _ in range(shape.randint(1, 8)):
            org.change()
        replica.apply(shape.randint(0, 12))
        org.hides = bool(replica.table.columns)  # fields of a new table are no schema change
        if shape.random() < 0.2:
            replica.move_back(shape.randint(1, 6))
        if shape.random() < 0.6:
            refresh_while_it_changes(replica, shape)
        if shape.random() < 0.3:
            check(replica, seed)
    check(replica, seed)
    org.change_once_more()
    replica.apply(len(org.events))
    org.hidden.clear()
    for _ in range(3):
        for _ in replica.refresh():
            pass
    assert (replica.differences(), replica.table.flag) == ([], None), seed
    assert not any(row["_dirty"] for row in replica.rows.values()), seed


def refresh_while_it_changes(replica: ModelReplica, shape: random.Random) -> None:
    for _ in replica.refresh():
        while shape.random() < 0.4:
            replica.org.change()
        if shape.random() < 0.2:
            replica.apply(shape.randint(1, 5))


def check(replica: ModelReplica, seed: int) -> None:
    replica.apply(len(replica.org.events))
    silent = [one for one in replica.differences() if not replica.is_marked_outdated(one[0], one[1])]
    assert not silent, (seed, silent)


@pytest.mark.parametrize("first", [0, pytest.param(20, marks=pytest.mark.extended)])
def test_no_difference_is_silent(first: int) -> None:
    for seed in range(first, SEEDS if first else 20):
        run(seed)
