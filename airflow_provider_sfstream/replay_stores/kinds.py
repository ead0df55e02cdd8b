"""The replay stores by the names that arguments give them. Apart, so that whoever offers them loads nothing else."""

from __future__ import annotations

from typing import Literal, get_args

PositionStoreKind = Literal["variable", "table"]
"""The stores that tell a stream's position without its landing."""
ReplayStoreKind = Literal[PositionStoreKind, "landing"]
POSITION_STORES: tuple[str, ...] = get_args(PositionStoreKind)
REPLAY_STORES: tuple[str, ...] = get_args(ReplayStoreKind)
