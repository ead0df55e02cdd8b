"""A structured streaming query, killed again and again at random: its rows against the org's record.

Prints a JSON line: how many events were published, how many the output lacks, and how many it has too often.
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
    parser.add_argument("--within", type=float, default=12.0, help="seconds after its start in which it is killed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalOrg.running(Path(folder) / "org") as org:
        outcome = run(org, Path(folder), arguments.kills, arguments.seed, arguments.within)
    print(as_line(outcome))
    sys.exit(bool(outcome.lost or outcome.repeated))


if __name__ == "__main__":
    main()
