"""The order of a stream's windows, whatever order they are given in. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from airflow_provider_sfstream.protocol.streams import ReplayWindow


def stream_order(windows: Iterable[ReplayWindow]) -> list[ReplayWindow]:
    """Return each of ``windows`` once: live windows in the order of their chain, backfill windows between by time.

    Parts of a chain that no given window links are in order of time.
    """
    by_time = sorted({window.window_id: window for window in windows}.values(), key=_time)
    live = _chains([window for window in by_time if window.kind == "live"])
    return list(heapq.merge(live, [window for window in by_time if window.kind == "backfill"], key=_time))


def _chains(by_time: list[ReplayWindow]) -> list[ReplayWindow]:
    """Return live windows so that each comes after the one that it follows, if that is among them."""
    known = {window.window_id for window in by_time}
    following: dict[str, list[ReplayWindow]] = defaultdict(list)
    heads = []
    for window in by_time:
        if window.previous_window_id in known:
            following[window.previous_window_id].append(window)
        else:
            heads.append(window)
    ordered: dict[str, ReplayWindow] = {}
    for head in [*heads, *by_time]:  # again all of them: links in a circle have no head
        ahead = [head]
        while ahead and (window := ahead.pop()).window_id not in ordered:
            ordered[window.window_id] = window
            ahead.extend(reversed(following[window.window_id]))
    return list(ordered.values())


def _time(window: ReplayWindow) -> tuple[datetime, str]:
    return window.covered_from or window.first_event_time or window.run.run_after, window.window_id
