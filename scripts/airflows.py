"""Run the suites that touch Airflow on each Airflow that is supported, and print what ran: `make test-airflows`.

Each Airflow gets an environment of its own, with the versions that ``tests/airflows`` has for it; the one of
``constraints.txt`` is the developer's own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = {
    "operators and sensors": ["tests/integration/operators", "tests/integration/sensors"],
    "hooks": ["tests/integration/hooks", "tests/unit/hooks"],
    "triggers and assets": [
        "tests/integration/triggers",
        "tests/unit/triggers",
        "tests/unit/assets",
        "tests/unit/queues",
    ],
    "stores": ["tests/integration/replay_stores", "tests/unit/replay_stores"],
    "page and notifier": ["tests/unit/plugins", "tests/integration/notifications", "tests/unit/notifications"],
    "the main job on a real Airflow": ["tests/system/test_micro_batch.py"],
}


def environment(version: str) -> Path:
    """Return the folder of programs of an environment with that Airflow, made where it is not there."""
    folder = ROOT / f".venv-airflow-{version}"
    python = folder / "bin" / "python"
    versions = ROOT / "tests" / "airflows" / f"{version}.txt"
    done = folder / ".installed"
    if not done.exists() or done.stat().st_mtime < max(
        versions.stat().st_mtime, (ROOT / "pyproject.toml").stat().st_mtime
    ):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--constraint", versions]
        subprocess.run([*pip[:5], "--upgrade", "pip>=25.1"], check=True)
        subprocess.run([*pip, "--editable", ".", "--editable", "localorg", "--group", "dev"], cwd=ROOT, check=True)
        done.touch()
    return python.parent


def outcome(programs: Path, paths: list[str]) -> tuple[str, bool]:
    """Return how the tests below ``paths`` ended, as pytest counts it, and whether all was well."""
    run = subprocess.run(
        [programs / "python", "-m", "pytest", "-n", "2", "-q", "-m", "not extended", *paths],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    counted = re.findall(r"^=*\s*((?:\d+ \w+,? ?)+) in [\d.]+s", run.stdout, re.MULTILINE)
    if run.returncode:
        print(run.stdout)
    return (counted[-1].strip() if counted else f"pytest ended with {run.returncode}"), run.returncode == 0


def main() -> int:
    """Run each suite on each Airflow, or on those that are named."""
    newest = re.search(r"^apache-airflow==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert newest is not None
    versions = sorted([newest[1], *(path.stem for path in (ROOT / "tests" / "airflows").glob("*.txt"))])
    well = True
    for version in sys.argv[1:] or versions:
        programs = Path(sys.executable).parent if version == newest[1] else environment(version)
        for suite, paths in SUITES.items():
            counted, ended_well = outcome(programs, paths)
            print(f"| {version} | {suite} | {counted} |", flush=True)
            well = well and ended_well
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
