"""``make mutants``: measure how many small code changes the tests detect, on a fixed sample.

cosmic-ray generates the changes; the sample is ``tests/mutants/sample.json``. Each mutant runs in a copy of the project
against the unit and contract tests of its group of modules, one mutant on each core. A mutant that no test detects is
printed as a diff: either a test is missing, or the change has no effect.
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
"""Number of mutants in each group of modules."""
SECONDS = 400
"""A mutant counts as detected if its tests take longer than this."""

ROOMS = {
    "replay_windows": ["tests/unit/replay_windows", "tests/integration/replay_windows"],
    "replay_stores": ["tests/unit/replay_stores", "tests/integration/replay_stores/test_replay_store_contract.py"],
    "landing": ["tests/unit/landing", "tests/integration/landing/test_landing_contract.py"],
    "erasure": [
        "tests/unit/erasure",
        "tests/integration/operators/test_erase_records.py",
        "tests/integration/operators/test_erase_from_replicas.py",
        "tests/integration/operators/test_erase_remains.py",
    ],
    "streams": ["tests/unit/streams"],
    "monitoring": ["tests/unit/monitoring"],
    "privacy": ["tests/unit/privacy"],
    "salesforce": ["tests/unit/salesforce"],
}
"""The tests of each group of modules. Of the contract suites, only the tests that need no server."""
WITHOUT_SERVERS = "not postgres and not mariadb and not s3"

# Left out: `|` occurs in annotations, which are not evaluated; `is` instead of `==` has no effect on constants; modules
# can rarely be imported without their decorators. One replacement for each operator is enough.
NOTHING = re.compile(r"(^|, )\*,|^@dataclass")
"""Code to skip: the `*` among parameters is no multiplication, and `frozen=True` has no effect on correct code."""
LEFT_OUT = ("BitOr", "_Is", "VariableReplacer", "VariableInserter", "RemoveDecorator")


def choose() -> list[dict[str, Any]]:
    """Choose mutants: random places in the code of each group, and a random change at each place."""
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
        chosen = [chance.choice(places[place]) for place in chance.sample(sorted(places), min(2 * EACH, len(places)))]
        described = [{"room": room, **mutant, "line": changed_line(*mutated(ROOT, mutant))} for mutant in chosen]
        sample += [mutant for mutant in described if not NOTHING.search(mutant["line"])][:EACH]
    return sample


def mutated(tree: Path, mutant: dict[str, Any]) -> tuple[str, str]:
    """Return a module's code before and after the change."""
    code = (tree / mutant["file"]).read_text()
    return code, mutate_code(code, get_operator(mutant["change"])(), mutant["number"]) or code


def changed_line(code: str, changed: str) -> str:
    """Return the original text of the first changed line."""
    lines = zip(code.splitlines(), changed.splitlines(), strict=False)
    return next((one.strip() for one, other in lines if one != other), "")


def copies(root: Path, count: int, below: Path) -> Iterator[Path]:
    """Create ``count`` copies of a checkout, with the files that tests read, and yield their folders."""
    for number in range(count):
        tree = below / str(number) / "project"
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
        (tree.parent / "shared").symlink_to(root.parent / "shared")
        yield tree


def test_command(tree: Path, room: str) -> str:
    """Return the shell command that runs the tests of a group in a copy, on the code of the copy."""
    command = [
        "env", "-C", tree, f"PYTHONPATH={tree}", "PYTHONDONTWRITEBYTECODE=1",
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist",
        "-k", WITHOUT_SERVERS, "-m", "not extended", *ROOMS[room],
    ]  # fmt: skip
    return shlex.join(map(str, command))


def check_unchanged(tree: Path, room: str) -> None:
    """Check that the tests of a group pass on the unchanged code."""
    outcome, output = run_tests(test_command(tree, room), SECONDS)
    if outcome is not TestOutcome.SURVIVED:
        sys.exit(f"The tests of {room} fail without a mutant:\n{output}")


def survivor(tree: Path, mutant: dict[str, Any]) -> str:
    """Return the change as a diff if the tests of its group pass with it, otherwise an empty text."""
    code, changed = mutated(tree, mutant)
    if changed_line(code, changed) != mutant["line"]:
        sys.exit(f"{mutant['file']}: {mutant['line']!r} has moved. Choose a new sample (--choose).")
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
    """Choose a new sample, or test the stored sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choose", action="store_true", help="choose a new sample and end")
    parser.add_argument("--room", choices=sorted(ROOMS), action="append", help="test only these groups of modules")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to test (default: this one)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="number of mutants tested in parallel")
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
