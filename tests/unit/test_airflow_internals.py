"""Imports of Airflow: only ``_airflow`` imports internals, and the documentation lists each."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_provider_sfstream"
PUBLIC = (
    "airflow.sdk",
    "airflow.providers",
    "airflow.configuration",
    "airflow.plugins_manager",
    "airflow.triggers.base",
    "airflow.triggers.shared_stream",
    "airflow.cli.cli_config",
)


def internals(path: Path) -> set[str]:
    """Return the modules of Airflow that a file imports and that are not public."""
    imports = re.findall(r"^ *(?:from|import) (airflow(?:\.\w+)*)\b(?: import (\w+))?", path.read_text(), re.MULTILINE)
    modules = {f"airflow.{name}" if module == "airflow" else module for module, name in imports}
    return {module for module in modules if not is_public(module)}


def is_public(name: str) -> bool:
    return any(f"{name}.".startswith(f"{public}.") for public in PUBLIC)


def test_only_one_package_imports_internals_of_airflow_and_the_documentation_lists_them() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): internals(path) for path in PACKAGE.rglob("*.py")}
    assert [path for path, names in found.items() if names and not path.startswith("_airflow/")] == []
    text = (ROOT / "docs/reference/airflow-versions.md").read_text()
    rows = re.findall(r"^\| (`airflow\..*?) \|", text.partition("\n## Internals of Airflow\n")[2], re.MULTILINE)
    assert sorted(re.findall(r"`(.+?)`", " ".join(rows))) == sorted(set().union(*found.values()))
