"""Diffs of long texts: their form in Salesforce's guide, and their application by the patch utility."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfstream_localorg.records.text_diffs import text_diff
from tests.support.packages import PATCH, need

LINES = [f"This is line number {n} of a text that is long enough." for n in range(40)]


def test_text_diff_has_the_form_of_the_guide() -> None:
    after = [*LINES[:1], "Business apps.", *LINES[2:6], "Always dig deeper.", *LINES[7:]]
    hash_value = hashlib.sha256("\n".join(after).encode()).hexdigest()
    assert text_diff("\n".join(LINES), "\n".join(after)) == (
        f"--- \n+++ {hash_value}\n@@ -2,1 +2,1 @@\n-{LINES[1]}\n+Business apps.\n"
        f"@@ -7,1 +7,1 @@\n-{LINES[6]}\n+Always dig deeper."
    )


def test_text_diff_ignores_the_kind_of_line_breaks() -> None:
    one = text_diff("\n".join(LINES), "\n".join([*LINES, "more"]))
    other = text_diff("\r\n".join(LINES), "\r\n".join([*LINES, "more"]))
    assert one is not None
    assert other is not None
    assert one.splitlines()[2:] == other.splitlines()[2:] == ["@@ -40,0 +41,1 @@", "+more"]
    assert one.splitlines()[1] != other.splitlines()[1]


@pytest.mark.parametrize(
    "after",
    [
        LINES[:10],  # much shorter
        [*LINES, *LINES],  # much longer
        [*(line.upper() for line in LINES[:11]), *LINES[11:]],  # 22 of 80 lines
    ],
)
def test_text_with_too_many_changes_has_no_diff(after: list[str]) -> None:
    assert text_diff("\n".join(LINES), "\n".join(after)) is None


def test_diff_that_is_not_shorter_than_the_text_is_not_used() -> None:
    assert text_diff("a" * 1000, "a" * 999 + "b") is None


def test_patch_utility_applies_text_diffs(tmp_path_factory: pytest.TempPathFactory) -> None:
    need(PATCH)
    folder = tmp_path_factory.mktemp("patch")

    @given(st.lists(st.integers(0, 39), max_size=5), st.lists(st.integers(0, 39), max_size=5))
    def check(removed: list[int], doubled: list[int]) -> None:
        after = [line for n, line in enumerate(LINES) if n not in removed for line in [line] * (1 + doubled.count(n))]
        diff = text_diff("\n".join(LINES), "\n".join(after))
        if after == LINES:
            assert diff is not None
            assert "@@" not in diff
        elif diff is not None:
            assert patched(folder, diff) == "\n".join(after) + "\n"

    check()


def patched(folder: Path, diff: str) -> str:
    old, new = folder / "old", folder / "new"
    old.write_text("\n".join(LINES) + "\n")
    subprocess.run(
        ["patch", "--unified", "--silent", "--output", str(new), str(old)],
        input=diff + "\n",
        text=True,
        check=True,
        timeout=20,
    )
    return new.read_text()
