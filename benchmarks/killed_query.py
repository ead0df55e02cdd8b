"""Benchmark ``killed_query``: rows of a structured streaming query that is killed at random, and the org's record.

It prints a JSON line with the number of published, missing and repeated events.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sfstream_localorg.process import LocalOrg
from tests.support.killed_queries import as_line, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=12.0, help="kill the query within these seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalOrg.running(Path(folder) / "org") as org:
        outcome = run(org, Path(folder), arguments.kills, arguments.seed, arguments.within)
    print(as_line(outcome))
    sys.exit(bool(outcome.lost or outcome.repeated))


if __name__ == "__main__":
    main()
