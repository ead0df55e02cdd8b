"""A line now and then of how far Spark is, so that a log shows whether a job is at work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

INTERVAL = 15.0
"""Seconds between two lines."""


@contextmanager
def progress(spark: Any, interval: float = INTERVAL) -> Iterator[None]:
    """Log how many tasks of the stages at work are done, from a thread, as long as the block runs."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def tell() -> None:
        while not ended.wait(interval):
            if line := _line(tracker):
                log.info("%s", line)

    thread = threading.Thread(target=tell, name="sfstream-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _line(tracker: Any) -> str | None:
    """Return what Spark is at; ``None`` if it is at nothing, or cannot be asked."""
    try:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    except Exception:  # of the session that is ending; the job says what is wrong
        return None
    found = [stage for stage in stages if stage is not None]
    parts = [f"{stage.numCompletedTasks} of {stage.numTasks} tasks of stage {stage.stageId}" for stage in found]
    return f"Spark is at work: {', '.join(parts)} done." if parts else None
