"""The packages that the install command of the README installs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[3]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
SHARED = """
from importlib.metadata import files
sums = lambda name: {str(each): each.hash and each.hash.value for each in files(name)}
one, other = sums("pyspark"), sums("pyspark-client")
shared = [path for path in one.keys() & other.keys() if ".dist-info" not in path]
print(len(shared), sum(one[path] != other[path] for path in shared))
"""
"""Print the number of paths that both packages contain, and the number of those whose files differ."""


def command() -> str:
    """Return the requirement that the README installs, like ``airflow-provider-sfstream[s3,spark]``."""
    found = re.search(r"^\$ pip install '(airflow-provider-sfstream\[.*?\])'", (ROOT / "README.md").read_text(), re.M)
    assert found is not None
    return found[1]


def built(folder: Path) -> str:
    """Build the wheel, and return it with the extras that the README installs."""
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return f"{wheel}{command().removeprefix('airflow-provider-sfstream')}"


@pytest.mark.extended
def test_wheel_contains_the_streams_page_and_the_example_dags(tmp_path: Path) -> None:
    wheel = Path(built(tmp_path).partition("[")[0])
    page = ROOT / "airflow_provider_sfstream" / "plugins" / "page"
    files = {str(path.relative_to(ROOT)) for path in (page / "static").iterdir()}
    assert len(files) > 10
    with ZipFile(wheel) as archive:
        assert files <= set(archive.namelist())
        assert "airflow_provider_sfstream/cli/stream_dag.py.jinja" in archive.namelist()
        assert "pyspark_sfstream/__init__.py" in archive.namelist()  # Spark finds it by its name
        (name,) = (each for each in archive.namelist() if each.endswith("entry_points.txt"))
        assert "[airflow.plugins]" in archive.read(name).decode()
        for path in (ROOT / "dags").glob("*.*"):
            assert archive.read(f"airflow_provider_sfstream/example_dags/{path.name}") == path.read_bytes()


@pytest.mark.extended
def test_pyspark_and_pyspark_client_have_the_same_version(tmp_path: Path) -> None:
    report, what = tmp_path / "report.json", built(tmp_path)
    options = ["--dry-run", "--ignore-installed", "--report", str(report)]
    subprocess.run([*PIP, "install", *options, what], check=True, timeout=600)
    found = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    versions = {each["name"].lower(): each["version"] for each in found}
    constraints = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert versions["pyspark"] == versions["pyspark-client"] == constraints["pyspark"] == constraints["pyspark-client"]
    assert "sfstream-localorg" not in versions


@pytest.mark.extended
def test_pyspark_and_pyspark_client_do_not_overwrite_each_other(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv/bin/python"
    packages = ["--no-deps", "--constraint", ROOT / "constraints.txt", "pyspark", "pyspark-client"]
    subprocess.run([python, *PIP[1:], "install", *packages], check=True, timeout=1200)
    shown = subprocess.run(
        [python, "-c", SHARED], check=True, timeout=120, capture_output=True, text=True, cwd=tmp_path
    )
    shared, different = map(int, shown.stdout.split()[:2])
    assert shared > 100
    assert different == 0
