"""docs/operations.md agrees with the code: log lines, messages, times, links and tests."""

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
    """Return the cells of the table whose header begins with ``head``."""
    lines = GUIDE.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {head} |"))
    end = next(n for n in range(start, len(lines)) if not lines[n].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[start + 2 : end]]


def package_texts() -> str:
    """Return every string of the package's code, one per line."""
    texts = []
    for path in (ROOT / "airflow_provider_sfstream").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_documented_log_lines_exist_in_the_package() -> None:
    texts = package_texts()
    lines = [row[0].strip("`") for row in table("log line")]
    assert len(lines) > 5
    assert [line for line in lines if line not in texts] == []


def test_documented_restore_messages_exist_in_the_package() -> None:
    texts = package_texts()
    messages = [row[0].strip("`") for row in table("message")]
    assert messages
    assert [part for message in messages for part in message.split("...") if part.strip(" ,") not in texts] == []


@pytest.mark.parametrize("schedule", INTERVALS)
def test_documented_slack_equals_retention_minus_interval(schedule: str) -> None:
    [row] = [row for row in table("schedule") if row[0] == schedule]
    for cell, topic in zip(row[1:], ("/event/Order__e", "/topic/Orders"), strict=True):
        slack = (retention_by_kind(topic) or LONG_RETENTION) - timedelta(hours=INTERVALS[schedule])
        hours, minutes = divmod(int(slack.total_seconds() / 60), 60)
        expected = f"{hours} h {minutes} min" if minutes else f"{hours} h"
        assert cell == (expected if slack else "none")


def test_tests_named_as_evidence_exist() -> None:
    names = re.findall(r"`(tests/[\w/.]+\.py)`(?:, `(test_\w+\.py)`)?", EVIDENCE)
    assert len(names) >= 4
    for path, sibling in names:
        assert (ROOT / path).exists(), path
        assert not sibling or (ROOT / path).with_name(sibling).exists(), sibling


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_links_have_a_target(guide: Path) -> None:
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
