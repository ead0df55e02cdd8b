"""Check ``claims``: compare every claim of every successful run with the log of the bus from which it drained.

Each run is one random scenario of 10 to 60 steps: publishing, drains, faults, kills, lost stores and wrong clocks. It
uses the package's own functions with a real landing and a real store, on a bus in memory with simulated time. A seed
always produces the same scenario.

    python benchmarks/claims.py --runs 1000 --seed 0
    python benchmarks/claims.py --runs 1 --seed 17 --verbose

It prints one JSON line, and for each false claim the command that reproduces it. The exit status is 1 if there is one.
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
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; each further run adds 1")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default=",".join(sorted(HAZARDS)), help="hazards to use, separated by commas")
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
        false.update(kind for kind, _ in report.false_claims)
        for kind, text in report.false_claims[:3]:
            print(f"seed {report.seed}: {kind}: {text}")
    result = {
        "benchmark": "claims",
        "runs": len(reports),
        "green_runs": sum(report.green for report in reports),
        "red_runs": sum(report.red for report in reports),
        "events": sum(report.events for report in reports),
        "claims": dict(sorted(checked.items())),
        "false": dict(sorted(false.items())),
        "scenarios_with_false_claims": sum(bool(report.false_claims) for report in reports),
        "lost": sum(report.lost for report in reports),
        "twice": sum(report.duplicates for report in reports),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(result))
    return int(bool(false))


if __name__ == "__main__":
    sys.exit(main())
