"""``make mutants``: how many small changes to the package its own room's tests notice, on a fixed sample.

cosmic-ray finds what can be changed and changes it; the sample is ``tests/mutants/sample.json``. A mutant runs in a
copy of the project, against the unit and contract tests of its room, as many at once as there are cores. What survives
is printed as a diff: a test is missing, or the change makes no difference.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from cosmic_ray.commands.init import _all_work_items as possible_mutations
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "tests" / "mutants" / "sample.json"
PACKAGE = "airflow_provider_sfstream"
EACH = 35
"""Mutants of each room."""
SECONDS = 400
"""A mutant that keeps the tests from ending in this time is noticed."""

ROOMS = {
    "replay_windows": ["tests/unit/replay_windows", "tests/integration/replay_windows"],
    "replay_stores": ["tests/unit/replay_stores", "tests/integration/replay_stores/test_replay_store_contract.py"],
    "landing": [
        "tests/unit/landing",
        "tests/integration/landing/test_landing_contract.py",
        "tests/integration/operators/test_erase_records.py",
    ],
    "streams": ["tests/unit/streams"],
    "monitoring": ["tests/unit/monitoring"],
    "privacy": ["tests/unit/privacy"],
    "salesforce": ["tests/unit/salesforce"],
}
"""The tests of each room. Of the contract suites, what needs no server."""
WITHOUT_SERVERS = "not postgres and not mariadb and not s3"

# Of an operator that stands for any other one is enough; `|` is found in annotations, which nothing evaluates, and `is`
# for `==` makes no difference to constants. Without its decorator a module can seldom be imported.
NOTHING = re.compile(r"(^|, )\*,|^@dataclass")
"""The star among parameters is no multiplication, and that values are frozen is for their reader."""
LEFT_OUT = ("BitOr", "_Is", "VariableReplacer", "VariableInserter", "RemoveDecorator")


def choose() -> list[dict[str, Any]]:
    """Choose mutants: random places of the code of each room, and at each place a random change."""
    chance = random.Random(13)
    sample = []
    for room in ROOMS:
        files = sorted(path for path in (ROOT / PACKAGE / room).rglob("*.py") if "_pb2" not in path.name)
        places: dict[tuple[str, tuple[int, int]], list[dict[str, Any]]] = {}
        for item in possible_mutations([path.relative_to(ROOT) for path in files], {}):
            (one,) = item.mutations
            mutant = {"file": str(one.module_path), "change": one.operator_name, "number": one.occurrence}
            if not any(name in one.operator_name for name in LEFT_OUT):
                places.setdefault((str(one.module_path), one.start_pos), []).append(mutant)
        chosen = [chance.choice(places[place]) for place in chance.sample(sorted(places), 2 * EACH)]
        described = [{"room": room, **mutant, "line": changed_line(*mutated(ROOT, mutant))} for mutant in chosen]
        sample += [mutant for mutant in described if not NOTHING.search(mutant["line"])][:EACH]
    return sample


def mutated(tree: Path, mutant: dict[str, Any]) -> tuple[str, str]:
    """Return a module's code without and with the change."""
    code = (tree / mutant["file"]).read_text()
    return code, mutate_code(code, get_operator(mutant["change"])(), mutant["number"]) or code


def changed_line(code: str, changed: str) -> str:
    """Return the first line that a change makes different, as it was."""
    lines = zip(code.splitlines(), changed.splitlines(), strict=False)
    return next((one.strip() for one, other in lines if one != other), "")


def copies(root: Path, count: int, below: Path) -> Iterator[Path]:
    """Copy a checkout so many times, with what tests read beside it."""
    for number in range(count):
        tree = below / str(number) / "project"
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
        (tree.parent / "shared").symlink_to(root.parent / "shared")
        yield tree


def test_command(tree: Path, room: str) -> str:
    """Return what runs the tests of a room in a copy, and the copy's code in every process of theirs."""
    command = [
        "env", "-C", tree, f"PYTHONPATH={tree}", "PYTHONDONTWRITEBYTECODE=1",
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist",
        "-k", WITHOUT_SERVERS, "-m", "not extended", *ROOMS[room],
    ]  # fmt: skip
    return shlex.join(map(str, command))


def check_unchanged(tree: Path, room: str) -> None:
    """Check that the tests of a room pass as long as nothing is changed."""
    outcome, output = run_tests(test_command(tree, room), SECONDS)
    if outcome is not TestOutcome.SURVIVED:
        sys.exit(f"The tests of {room} fail without a mutant:\n{output}")


def survivor(tree: Path, mutant: dict[str, Any]) -> str:
    """Return the change as a diff if the tests of its room pass with it, else nothing."""
    code, changed = mutated(tree, mutant)
    if changed_line(code, changed) != mutant["line"]:
        sys.exit(f"{mutant['file']}: {mutant['line']!r} is not where it was: choose a new sample (--choose).")
    path = tree / mutant["file"]
    path.write_text(changed)
    try:
        outcome, _ = run_tests(test_command(tree, mutant["room"]), SECONDS)
    finally:
        path.write_text(code)
    if outcome is not TestOutcome.SURVIVED:
        return ""
    lines = difflib.unified_diff(code.splitlines(), changed.splitlines(), mutant["file"], mutant["file"], "", "", 1, "")
    return "\n".join(lines)


def main() -> None:
    """Choose a sample, or try the one that is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choose", action="store_true", help="choose a new sample and end")
    parser.add_argument("--room", choices=sorted(ROOMS), action="append", help="only the mutants of these rooms")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to try, if not this one")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="mutants that are tried at once")
    arguments = parser.parse_args()
    if arguments.choose:
        SAMPLE.write_text("[\n" + ",\n".join(json.dumps(one) for one in choose()) + "\n]\n")
        return
    sample = [one for one in json.loads(SAMPLE.read_text()) if one["room"] in (arguments.room or ROOMS)]
    begun, noticed = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as below, ThreadPoolExecutor(arguments.workers) as workers:
        trees: Queue[Path] = Queue()
        for tree in copies(arguments.root, arguments.workers, Path(below)):
            trees.put(tree)
        for room in dict.fromkeys(one["room"] for one in sample):
            check_unchanged(trees.queue[0], room)

        def try_one(mutant: dict[str, Any]) -> str:
            tree = trees.get()
            try:
                return survivor(tree, mutant)
            finally:
                trees.put(tree)

        for mutant, difference in zip(sample, workers.map(try_one, sample), strict=True):
            noticed[mutant["room"]] += not difference
            if difference:
                print(f"\nsurvived: {difference}", flush=True)
    print()
    for room, count in Counter(one["room"] for one in sample).items():
        print(f"{room:10} {noticed[room]:4} of {count:4} noticed")
    print(f"all        {noticed.total():4} of {len(sample):4} noticed, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
