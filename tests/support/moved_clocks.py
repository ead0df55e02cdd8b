"""Hours that pass for an org and for a worker's interval runs, together or for one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.replay_windows.interval import drain_interval
from tests.support.localorg import LocalOrg


class MovedClocks:
    """Clocks of an org and of interval runs, right at first."""

    def __init__(self, org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
        self._org, self._offset = org, timedelta(0)
        monkeypatch.setitem(drain_interval.__kwdefaults__, "now", self.now)

    def now(self) -> datetime:
        """Return the worker's time."""
        return datetime.now(UTC) + self._offset

    def move(self, *, org: float, worker: float) -> None:
        """Set both to so many hours after the present."""
        self._org.knobs(clock_offset_seconds=org * 3600)
        self._offset = timedelta(hours=worker)
