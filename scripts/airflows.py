"""Run the test suites that use Airflow on each supported Airflow version and print the results: `make test-airflows`.

Each Airflow version has its own virtual environment with the package versions from ``tests/airflows``. The version in
``constraints.txt`` uses the developer's environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = {
    "operators and sensors": ["tests/integration/operators", "tests/integration/sensors", "tests/unit/operators"],
    "hooks": ["tests/integration/hooks", "tests/unit/hooks"],
    "triggers and assets": [
        "tests/integration/triggers",
        "tests/unit/triggers",
        "tests/unit/assets",
        "tests/unit/queues",
    ],
    "command line": ["tests/integration/cli", "tests/unit/cli"],
    "stores": ["tests/integration/replay_stores", "tests/unit/replay_stores"],
    "page and notifier": ["tests/unit/plugins", "tests/integration/notifications", "tests/unit/notifications"],
    "a real Airflow": ["tests/system/test_micro_batch.py", "tests/system/test_loss_question.py"],
}


def environment(version: str) -> Path:
    """Create the environment of an Airflow version if it does not exist; return its folder of programs."""
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
        subprocess.run(
            [*pip, "--editable", ".[spark,streaming]", "--editable", "localorg", "--group", "dev"], cwd=ROOT, check=True
        )
        done.touch()
    return python.parent


def outcome(programs: Path, paths: list[str]) -> tuple[str, bool]:
    """Run the tests below ``paths``, extended ones only on a real Airflow; return pytest's summary and whether the run
    succeeded."""
    tests = "not exhaustive" if paths[0].startswith("tests/system") else "not extended"
    run = subprocess.run(
        [programs / "python", "-m", "pytest", "-n", "2", "-q", "-m", tests, *paths],
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
    """Run each suite on each Airflow version, or on the versions on the command line."""
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
