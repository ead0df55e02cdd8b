"""Waiting for the one place that a managed subscription has for a stream. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import SubscriptionBusyError

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_MOST_DOUBLINGS = 10


@dataclass
class SlotWait:
    """How long to wait for a place that another stream holds: ``timeout`` seconds from the first refusal.

    Salesforce frees it within 15 seconds after a stream's clean end, and about 15 minutes after its connection was lost
    without a close. Nobody can free it sooner.

    :param clock: monotonic seconds. ``random`` is a number in ``[0, 1)``.
    """

    name: str
    timeout: float
    clock: Callable[[], float]
    random: Callable[[], float]
    _since: float | None = field(default=None, init=False)
    _refusals: int = field(default=0, init=False)

    def taken(self) -> None:
        """Note that the place was given to us."""
        self._since, self._refusals = None, 0

    def pause_after(self, error: SubscriptionBusyError) -> float:
        """Return the seconds to wait before asking again: doubled each time, jittered, at most 5.

        :raises SubscriptionBusyError: when the time is over. From then on, each refusal raises at once.
        """
        now = self.clock()
        if self._since is None:
            self._since = now
            log.info("%s: waiting up to %.0f s for its place: %s", self.name, self.timeout, error)
        waited = now - self._since
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._refusals, _MOST_DOUBLINGS))
        pause *= 0.5 + self.random() / 2
        self._refusals += 1
        if waited + pause <= self.timeout:
            return float(pause)
        raise SubscriptionBusyError(
            f"{self.name}: another stream has held it for {waited:.0f} seconds; {self.timeout:g} is how long to wait. "
            "If the connection of an earlier run was lost without a close, Salesforce holds the place for it for about "
            "15 minutes, and nothing can free it sooner: run again then, or wait longer (busy_timeout). Else look for "
            "the run, trigger or program that uses it: each consumer needs a managed subscription of its own. Nothing "
            "was read or moved."
        ) from error
