"""Install the wheel with each extra beside constraints of Airflow versions and print the sizes: `make test-installs`.

In each environment every public module must be imported, or name an extra that is not installed, and ``pip check`` must
find nothing. ``build/installs`` has one environment for each Airflow; delete it to install Airflow anew.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "installs"
PUBLISHED = "https://raw.githubusercontent.com/apache/airflow/constraints-{}/constraints-{}.{}.txt"
VERSIONS = ("3.1.8", "3.2.2", "3.3.2", "3.4.0b2")
EXTRAS = {"": set(), "tables": {"tables"}, "spark": {"spark", "tables"}, "streaming": {"streaming"}, "all": None}
"""Extras to install, each with those of which no module may be missing; ``None``: all."""

IMPORT_PUBLIC_MODULES = """
import pkgutil
from importlib import import_module
import airflow_provider_sfstream as package
from airflow_provider_sfstream._airflow import AirflowOptionalProviderFeatureException

rooms = "assets cli hooks notifications operators plugins queues replay_stores sensors".split()
rooms = [import_module(f"{package.__name__}.{room}") for room in rooms]
names = [each.name for room in rooms for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
names = [name for name in names if ".migrations" not in name and not name.endswith("__main__")]
others = "actions.drain.results exceptions monitoring.links provider_info salesforce.streaming.cometd.client"
others += " changes triggers.salesforce_allocation triggers.salesforce_event windows"
names += [f"{package.__name__}.{name}" for name in others.split()]
result = {}
for name in names:
    try:
        import_module(name)
    except AirflowOptionalProviderFeatureException as error:
        result[name] = str(error)
"""
"""Set ``result`` to the errors of the public modules that need a missing extra."""


def missing_extras(errors: dict[str, str]) -> set[str]:
    """Return the extras that errors name; raise for another text."""
    pattern = r"The module \S+ is missing: pip install '.*\[(\w+)\]'\."
    sentences = [re.fullmatch(pattern, error) for error in errors.values()]
    return {sentence[1] if sentence else str(errors) for sentence in sentences}


def pip(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the pip of an Airflow's environment."""
    command = [python, "-I", "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def installed(python: Path, constraints: str, *arguments: object) -> str | None:
    """Install, and return ``None``, or the reason why pip refused."""
    run = pip(python, *arguments, "--no-compile", "--constraint", constraints)
    if run.returncode == 0:
        return None
    _, _, causes = run.stdout.partition("The conflict is caused by:\n")
    lines = [line for line in (causes.partition("\n\n")[0] or run.stderr).splitlines() if "WARNING" not in line]
    return "; ".join(line.strip() for line in lines)


def airflow(version: str, constraints: str) -> Path:
    """Return the Python of an environment with Airflow, and install it where it does not exist."""
    python = FOLDER / version / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / version], check=True)
        if reason := installed(python, constraints, "install", "--upgrade", "pip>=25.1", f"apache-airflow=={version}"):
            shutil.rmtree(FOLDER / version)
            raise SystemExit(f"Airflow {version} beside {constraints}: {reason}")
    return python


def measure(wheel: Path, extra: str, base: Path, constraints: str) -> tuple[str, bool]:
    """Install the wheel with an extra in an environment on top of Airflow's; return the result of its checks."""
    folder = FOLDER / "with-extra"
    subprocess.run([base, "-m", "venv", "--without-pip", "--clear", folder], check=True)
    python, (packages,) = folder / "bin" / "python", folder.glob("lib/python*/site-packages")
    (packages / "airflow.pth").write_text(str(base.parent.parent / packages.relative_to(folder)))
    what = f"{wheel}[{extra}]" if extra else wheel
    if reason := installed(base, constraints, "--python", python, "install", what):
        return reason, False
    found = len(list(packages.glob("*.dist-info")))
    size = sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file())
    program = f"{IMPORT_PUBLIC_MODULES}\nimport json; print(json.dumps(result))"
    imports = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, cwd=FOLDER)
    if imports.returncode:
        return imports.stderr, False
    missing = missing_extras(json.loads(imports.stdout.splitlines()[-1]))
    every = {"messaging", "salesforce", "spark", "streaming", "tables"}
    present = every if EXTRAS[extra] is None else EXTRAS[extra]
    problems = [f"the modules lack {missing}, not {every - present}"] if missing != every - present else []
    check = pip(base, "--python", python, "check")
    problems += [check.stdout] if check.returncode else []
    return "; ".join([f"{found}, {size / 1e6:.0f} MB", *problems]), not problems


def main() -> int:
    """Install and check every extra beside each Airflow; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="of Airflow")
    parser.add_argument("--constraints", type=Path, help="folder of files VERSION.txt; else the published constraints")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.whl"):
        old.unlink()
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", FOLDER, ROOT]
    subprocess.run(build, check=True)
    (wheel,) = FOLDER.glob("*.whl")
    print(f"| Airflow | {' | '.join(extra or 'no extra' for extra in EXTRAS)} |\n|---|{'---|' * len(EXTRAS)}")
    succeeded = True
    for version in options.versions:
        constraints = PUBLISHED.format(version, *sys.version_info[:2])
        if options.constraints:
            constraints = str(options.constraints / f"{version}.txt")
        base, cells = airflow(version, constraints), []
        for extra in EXTRAS:
            cell, passed = measure(wheel, extra, base, constraints)
            cells.append(cell)
            succeeded = succeeded and passed
        print(f"| {version} | {' | '.join(cells)} |", flush=True)
    shutil.rmtree(FOLDER / "with-extra", ignore_errors=True)
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
