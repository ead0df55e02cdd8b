"""Documentation site, built as for publication: every page is built, and a broken link fails the build."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
ROOT = Path(__file__).parents[3]
REPOSITORY = "https://github.com/airflow-provider-sfstream/airflow-provider-sfstream/blob/main/"
OUTSIDE = ("README.md", "mkdocs.yml", "deploy", "docs", "scripts", "dags")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment, timeout=300)


def test_every_page_is_built_and_indexed(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path / "site")
    assert built.returncode == 0, built.stdout + built.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / "site" / page.relative_to(ROOT / "docs").with_suffix("") / "index.html").exists(), page
    texts = [(tmp_path / "site" / name / "index.html").read_text() for name in ("", "connection", "setting-up-an-org")]
    linked = {link for text in texts for link in re.findall(rf'href="{REPOSITORY}([^"#]+)', text)}
    assert {"dags/sfstream_micro_batch.py", "SECURITY.md", "dags/sfstream_preflight.py"} <= linked
    assert all((ROOT / link).exists() for link in linked)
    assert 'href="../reference/errors/"' in texts[2]
    index = json.loads((tmp_path / "site/search/search_index.json").read_text())["docs"]
    assert any("ReplayIdLostError" in entry["text"] and "reference/errors" in entry["location"] for entry in index)
    # A page must load no script or style from another host: it would see who reads the documentation.
    assert not re.findall(r'<(?:link|script)[^>]+(?:href|src)="https?://(?!github\.com)[^"]+\.(?:css|js)', texts[0])


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("docs/drain.md", "[a page that is not there](nowhere.md)"),
        ("docs/drain.md", "[a heading that is not there](reference/errors.md#nothing-of-the-kind)"),
        ("README.md", "[a file that is not there](dags/sfstream_nothing.py)"),
    ],
)
def test_broken_link_fails_the_build(tmp_path: Path, page: str, text: str) -> None:
    for name in OUTSIDE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "benchmarks"):  # targets of links
        (tmp_path / name).touch()
    with (tmp_path / page).open("a") as file:
        file.write(f"\n{text}\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert re.search(r"\]\(([^)]+)\)", text)[1].rpartition("/")[2].partition("#")[2] in built.stdout + built.stderr  # type: ignore[index]
