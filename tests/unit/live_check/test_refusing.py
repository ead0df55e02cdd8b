"""Live check: refused orgs, the waiting time of the second part, and redaction of reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from live_check.login import NotRunError, check_not_production
from live_check.probe import MOST_EVENTS
from live_check.probes import PROBES
from live_check.redaction import Redactor, hashed
from live_check.state import duration, read_left

ORG = "00D5g00000ABCDEAA4"
LEFT_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "record",
    [
        {"IsSandbox": True, "OrganizationType": "Enterprise Edition"},
        {"IsSandbox": False, "OrganizationType": "Developer Edition"},
    ],
)
def test_sandboxes_and_developer_editions_are_accepted(record: dict[str, Any]) -> None:
    check_not_production(record, ORG, None)


@pytest.mark.parametrize("record", [{"IsSandbox": False, "OrganizationType": "Enterprise Edition"}, {}, None])
def test_production_org_is_refused_unless_it_is_named(record: dict[str, Any] | None) -> None:
    with pytest.raises(NotRunError, match=f"--production-org {ORG}"):
        check_not_production(record, ORG, None)
    with pytest.raises(NotRunError):
        check_not_production(record, ORG, "00D5g00000ABCDFAA4")
    check_not_production(record, ORG, ORG)
    check_not_production(record, ORG, ORG[:15])


def test_all_probes_together_stay_within_the_budget() -> None:
    for part in {probe.part for probe in PROBES}:
        assert sum(probe.events for probe in PROBES if probe.part == part) < MOST_EVENTS
    assert len({probe.name for probe in PROBES}) == len(PROBES)


def state_file(path: Path, **changes: str) -> Path:
    state = {"org": hashed(ORG), "left_at": LEFT_AT.isoformat(), "replay_id": "00000000000000010000"}
    path.write_text(json.dumps(state | changes))
    return path


def test_second_part_is_refused_before_its_time(tmp_path: Path) -> None:
    path, after = state_file(tmp_path / "state.json"), duration("73h")
    with pytest.raises(NotRunError, match="after 2026-11-23 13:00 UTC"):
        read_left(path, after, org_id=ORG, now=LEFT_AT + after - timedelta(minutes=1))
    assert read_left(path, after, org_id=ORG, now=LEFT_AT + after).hex() == "00000000000000010000"


def test_state_of_another_org_or_invalid_state_is_refused(tmp_path: Path) -> None:
    later = LEFT_AT + timedelta(days=9)
    with pytest.raises(NotRunError, match="another org"):
        read_left(state_file(tmp_path / "a", org="x"), duration("73h"), org_id=ORG, now=later)
    for path in (tmp_path / "none", state_file(tmp_path / "b", left_at="x"), state_file(tmp_path / "c", replay_id="x")):
        with pytest.raises(NotRunError, match="no state file"):
            read_left(path, duration("73h"), org_id=ORG, now=later)


def test_times_are_written_as_hours_or_minutes() -> None:
    assert (duration("73h"), duration("5m")) == (timedelta(hours=73), timedelta(minutes=5))
    with pytest.raises(ValueError, match="73 hours"):
        duration("73 hours")


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"not found in core/prod/{ORG}.", "not found in core/prod/{org}."),
        (f"CORE/PROD/{ORG.upper()}", "CORE/PROD/{org}"),
        ("see https://acme--dev.sandbox.my.salesforce.com/x", "see https://{host}/x"),
        ("host acme.my.salesforce.com", "host {host}"),
        ("user ann.b@example.co.uk of 0055g000003ABCDAA2", "user {user} of {id}"),
        ("rpcId: 9f0b1e8a-2f77-4a51-8d0c-2a4e3b6f1c55", "rpcId: {uuid}"),
        ("record 18x5g0000000001AAA, 0015g00000XYZabAAC", "record {id}, {id}"),
        ("from 10.1.2.3:443", "from {host}"),
        ("Data:Double:00N5g000000abcd", "Data:Double:{id}"),
        ("topic.not.found", "topic.not.found"),
    ],
)
def test_identifying_values_of_an_org_are_redacted(text: str, redacted: str) -> None:
    redact = Redactor({"org": ORG, "user_id": "", "host": "acme.my.salesforce.com"})
    assert redact({"a": [text, 1, None]}) == {"a": [redacted, 1, None]}


def test_org_is_identified_by_a_hash_of_its_id() -> None:
    assert hashed(ORG) == hashed(ORG[:15]) != hashed("00D5g00000ABCDFAA4")
    assert ORG[3:15] not in hashed(ORG)
