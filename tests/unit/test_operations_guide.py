"""docs/operations.md says what the code says: log lines, arithmetic, links, the tests that try it."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION, retention_by_kind

ROOT = Path(__file__).parents[2]
GUIDES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])
GUIDE = (ROOT / "docs" / "operations.md").read_text()
EVIDENCE = (ROOT / "docs" / "guarantees.md").read_text().partition("### Operations")[2]
INTERVALS = {"every 15 minutes": 0.25, "every hour": 1, "every 6 hours": 6, "every day": 24}


def table(head: str) -> list[list[str]]:
    """Return the cells of the table whose head begins so."""
    lines = GUIDE.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {head} |"))
    end = next(n for n in range(start, len(lines)) if not lines[n].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[start + 2 : end]]


def said_in_the_package() -> str:
    """Return every text that the package's code has, each on a line of its own."""
    texts = []
    for path in (ROOT / "airflow_provider_sfstream").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_the_log_lines_are_logged() -> None:
    said = said_in_the_package()
    lines = [row[0].strip("`") for row in table("log line")]
    assert len(lines) > 5
    assert [line for line in lines if line not in said] == []


def test_the_messages_of_a_restore_are_raised() -> None:
    said = said_in_the_package()
    messages = [row[0].strip("`") for row in table("message")]
    assert messages
    assert [part for message in messages for part in message.split("...") if part.strip(" ,") not in said] == []


@pytest.mark.parametrize("schedule", INTERVALS)
def test_how_late_a_run_may_be(schedule: str) -> None:
    [row] = [row for row in table("schedule") if row[0] == schedule]
    for cell, topic in zip(row[1:], ("/event/Order__e", "/topic/Orders"), strict=True):
        slack = (retention_by_kind(topic) or LONG_RETENTION) - timedelta(hours=INTERVALS[schedule])
        hours, minutes = divmod(int(slack.total_seconds() / 60), 60)
        expected = f"{hours} h {minutes} min" if minutes else f"{hours} h"
        assert cell == (expected if slack else "none")


def test_the_tests_that_try_it_exist() -> None:
    names = re.findall(r"`(tests/[\w/.]+\.py)`(?:, `(test_\w+\.py)`)?", EVIDENCE)
    assert len(names) >= 4
    for path, sibling in names:
        assert (ROOT / path).exists(), path
        assert not sibling or (ROOT / path).with_name(sibling).exists(), sibling


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_links_lead_somewhere(guide: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", guide.read_text(), flags=re.DOTALL)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = guide if not name else (guide.parent / name).resolve()
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, target
