"""Execution of probes: first one after the other, then all waiting probes in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from live_check.probe import Probe
from live_check.run import ProbedOrg, ProbeRun, SkippedError

Say = Callable[[str], None]
Results = dict[str, dict[str, Any]]


def ask(org: ProbedOrg, probe: Probe) -> dict[str, Any]:
    """Return the result of one probe: its ``answer`` and measures, or the reason for a missing answer."""
    run = ProbeRun(org, probe.events)
    try:
        result: dict[str, Any] = {"answer": org.redact(probe.ask(run))}
    except SkippedError as missing:
        result = {"skipped": org.redact(str(missing))}
    except Exception as error:  # an unexpected answer must end only this probe
        result = {"failed": org.redact(f"{type(error).__name__}: {error}"[:300])}
    return {**result, "measured": run.measured, "events": run.events}


def ask_all(org: ProbedOrg, probes: Sequence[Probe], say: Say = lambda _: None) -> Results:
    """Return the result of each probe by its name.

    After an interrupt, threads remain until their calls end, so close the org.
    """
    results: Results = {}
    for probe in probes:
        if not probe.waits:
            say(probe.name)
            results[probe.name] = ask(org, probe)
    waiting = [probe for probe in probes if probe.waits]
    threads = [_asking(org, probe, results) for probe in waiting]
    if waiting:
        say(f"waiting up to {max(probe.waits for probe in waiting):.0f} s: {', '.join(p.name for p in waiting)}")
    for thread in threads:
        _join(thread)
    return {probe.name: results[probe.name] for probe in probes}


def ask_side_by_side(first: ProbedOrg, second: ProbedOrg, probes: Sequence[Probe], say: Say) -> tuple[Results, Results]:
    """Run the probes on two orgs at the same time; report the progress of the first."""
    found: dict[str, Results] = {}
    thread = threading.Thread(target=lambda: found.update(second=ask_all(second, probes)), daemon=True)
    thread.start()
    results = ask_all(first, probes, say)
    _join(thread)
    return results, found["second"]


def _join(thread: threading.Thread) -> None:
    """Wait for a thread in short steps: a signal does not interrupt a wait without timeout."""
    while thread.is_alive():
        thread.join(0.5)


def _asking(org: ProbedOrg, probe: Probe, results: Results) -> threading.Thread:
    thread = threading.Thread(target=lambda: results.update({probe.name: ask(org, probe)}), daemon=True)
    thread.start()
    return thread
