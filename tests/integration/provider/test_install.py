"""What pip makes of the README's install command, with nothing installed before and no constraints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def command() -> str:
    """Return what the README installs, such as ``airflow-provider-sfstream[pyspark,salesforce]``."""
    found = re.search(r"^\$ pip install '(airflow-provider-sfstream\[.*?\])'", (ROOT / "README.md").read_text(), re.M)
    assert found is not None
    return found[1]


@pytest.mark.extended
def test_the_two_packages_of_spark_are_of_one_version(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    report = tmp_path / "report.json"
    what = f"{wheel}{command().removeprefix('airflow-provider-sfstream')}"
    options = ["--dry-run", "--ignore-installed", "--report", str(report)]
    subprocess.run([*pip, "install", *options, what], check=True, timeout=600)
    found = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    versions = {each["name"].lower(): each["version"] for each in found}
    constraints = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert versions["pyspark"] == versions["pyspark-client"] == constraints["pyspark"] == constraints["pyspark-client"]
    assert versions["pandas"].startswith("2.")
    assert "sfstream-localorg" not in versions
