"""Check ``claims``: whether every claim of every green run is true by the log of the bus that it was drained from.

Each run of this is one random scenario, some 10 to 60 steps of publishing, drains, faults, kills, lost stores and wrong
clocks, over the shipped functions with a real landing and a real store, on a bus in memory, in time that passes as it
is waited for. A seed gives the same scenario each time.

    python benchmarks/claims.py --runs 1000 --seed 0
    python benchmarks/claims.py --runs 1 --seed 17 --verbose

Prints one JSON line, and for each false claim how to see it again. The exit status is 1 if there was any.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.claims import HAZARDS, Report, run_scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="how many scenarios")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default=",".join(sorted(HAZARDS)), help="what may go wrong, of these")
    parser.add_argument("--verbose", action="store_true", help="tell each step")
    arguments = parser.parse_args()
    started = time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    hazards = arguments.only.split(",")
    if not HAZARDS.issuperset(hazards):
        parser.error(f"--only takes {', '.join(sorted(HAZARDS))}")
    run = partial(run_scenario, hazards=hazards)
    if arguments.verbose or arguments.processes == 1:
        reports = [run(seed, print) if arguments.verbose else run(seed) for seed in seeds]
    else:
        with ProcessPoolExecutor(arguments.processes) as pool:
            reports = list(pool.map(run, seeds, chunksize=5))
    return _print(reports, time.monotonic() - started)


def _print(reports: list[Report], seconds: float) -> int:
    checked: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for report in reports:
        checked.update(report.checked)
        false.update(kind for kind, _ in report.false)
        for kind, text in report.false[:3]:
            print(f"seed {report.seed}: {kind}: {text}")
    result = {
        "benchmark": "claims",
        "runs": len(reports),
        "green_runs": sum(report.green for report in reports),
        "red_runs": sum(report.red for report in reports),
        "events": sum(report.events for report in reports),
        "claims": dict(sorted(checked.items())),
        "false": dict(sorted(false.items())),
        "scenarios_with_false_claims": sum(bool(report.false) for report in reports),
        "lost": sum(report.lost for report in reports),
        "twice": sum(report.twice for report in reports),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(result))
    return int(bool(false))


if __name__ == "__main__":
    sys.exit(main())
