"""Adjustable clocks of an org and of a worker's interval runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.replay_windows.interval import drain_interval
from tests.support.localorg import LocalOrg


class MovedClocks:
    """Clocks of an org and of interval runs; both show the present at first."""

    def __init__(self, org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
        self._org, self._offset = org, timedelta(0)
        monkeypatch.setitem(drain_interval.__kwdefaults__, "now", self.now)

    def now(self) -> datetime:
        """Return the current time of the worker's clock."""
        return datetime.now(UTC) + self._offset

    def move(self, *, org: float, worker: float) -> None:
        """Set the clocks ``org`` and ``worker`` hours ahead of the present."""
        self._org.knobs(clock_offset_seconds=org * 3600)
        self._offset = timedelta(hours=worker)
