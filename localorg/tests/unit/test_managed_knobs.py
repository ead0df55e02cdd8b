"""Knobs of managed subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from sfstream_localorg.admin.knobs import Knobs


@pytest.mark.parametrize("name", ["managed_release_seconds", "managed_visibility_seconds"])
def test_release_and_visibility_may_be_zero_but_not_negative(name: str) -> None:
    knobs = Knobs()
    knobs.update({name: 15})
    knobs.update({name: 0})
    assert knobs.as_dict()[name] == 0
    with pytest.raises(ValueError, match=name):
        knobs.update({name: -1})


@pytest.mark.parametrize(
    "changes", [{"managed_commit_seconds": 0}, {"managed_half_open_seconds": 0}, {"managed_ack_every": 0}]
)
def test_other_managed_knobs_may_not_be_zero(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Knobs().update(changes)
