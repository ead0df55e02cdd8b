"""``python -m tests.fuzz TARGET SECONDS SEED``: run one fuzz target on hostile inputs, in its own process.

Without arguments it lists the targets.

It prints a JSON line: the number of inputs, the outcomes, the longest CPU time of one input (seconds), and the largest
memory growth that one input caused (MiB). A failure ends the run with the input, reduced by Hypothesis. The seed
``random`` draws a new seed in each round.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import sys
import time
from collections import Counter

import hypothesis
import psutil
from hypothesis import given, settings

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from tests.fuzz.targets import TARGETS, check

ROUND = 200
MOST_SECONDS = 10.0
"""Limit of the CPU seconds for 1 MB of input."""


def main(name: str, seconds: float, seed: str) -> None:
    target = TARGETS[name]
    outcomes: Counter[str] = Counter()
    longest = 0.0
    deadline = time.monotonic() + seconds
    process, most_bytes = psutil.Process(), 0

    def run(value: object) -> None:
        nonlocal longest, most_bytes
        idle, peak = process.memory_info().rss, _peak()
        began = time.process_time()
        try:
            outcome = str(target.function(value))
        except SalesforceStreamError as error:
            outcome = type(error).__name__
            check(str(error))
        except target.raises as error:
            outcome = type(error).__name__
        longest = max(longest, time.process_time() - began)
        if _peak() > peak:  # the peak grew during this input; memory of Hypothesis itself counts as idle
            most_bytes = max(most_bytes, _peak() - idle)
        assert longest < MOST_SECONDS
        outcomes[outcome] += 1

    number = 0 if seed == "random" else int(seed)
    while not outcomes or time.monotonic() < deadline:
        number = random.SystemRandom().getrandbits(32) if seed == "random" else number + 1
        some = settings(
            max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        try:
            hypothesis.seed(number)(some(given(target.inputs)(run)))()
        except BaseException:
            print(f"{name} fails with seed {number}", file=sys.stderr)
            raise
    summary = {"target": name, "inputs": outcomes.total(), "outcomes": outcomes.most_common(12)}
    print(json.dumps(summary | {"longest_seconds": round(longest, 2), "mib_above_idle": most_bytes // 2**20}))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    faulthandler.enable()
    if len(sys.argv) == 1:
        sys.exit("\n".join(TARGETS))
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
