"""Comparison of the probe results of two orgs."""

from __future__ import annotations

from live_check.comparison import rows, table, unanswered

OBSERVED = {
    "topic_refusals": {"answer": {"unknown_topic": {"status": "PERMISSION_DENIED", "trailers": ["error-code"]}}},
    "managed_commits": {"skipped": "no managed event subscription"},
    "idle_stream": {"failed": "ValueError: what"},
}
LOCAL = {
    "topic_refusals": {"answer": {"unknown_topic": {"status": "NOT_FOUND", "trailers": ["error-code"], "more": 1}}},
    "managed_commits": {"answer": {"stream_goes_on": True}},
    "idle_stream": {"answer": {"end": "x"}},
}


def test_each_value_of_either_org_has_a_row() -> None:
    found = {row.path: row for row in rows(OBSERVED, LOCAL)}
    status = found["topic_refusals.unknown_topic.status"]
    assert (status.observed, status.local, status.evidence) == ("PERMISSION_DENIED", "NOT_FOUND", "observed")
    assert [row.path for row in found.values() if row.differs] == [
        "topic_refusals.unknown_topic.status",
        "topic_refusals.unknown_topic.more",
    ]
    assert not found["topic_refusals.unknown_topic.trailers"].differs


def test_probe_answered_by_one_org_is_listed_and_is_no_difference() -> None:
    assert {row.path.partition(".")[0] for row in rows(OBSERVED, LOCAL)} == {"topic_refusals"}
    assert unanswered(OBSERVED) == {
        "managed_commits": "no managed event subscription",
        "idle_stream": "ValueError: what",
    }


def test_a_part_that_an_org_cannot_answer_is_no_difference() -> None:
    observed = {"topics": {"answer": {"event": {"can_publish": True}, "channel": {"skipped": "NOT_FOUND"}}}}
    local = {"topics": {"answer": {"event": {"can_publish": True}, "channel": {"can_publish": False}}}}
    assert [row.path for row in rows(observed, local)] == ["topics.event.can_publish"]
    assert unanswered(observed) == {"topics.channel": "NOT_FOUND"}


def test_table_marks_differences() -> None:
    lines = table(rows(OBSERVED, LOCAL)).splitlines()
    assert lines[0].split() == ["observed", "local", "org", "evidence"]
    assert [line[0] for line in lines[1:]] == ["≠", " ", "≠"]
    assert len(table(rows(OBSERVED, LOCAL), only_differences=True).splitlines()) == 3
    assert table(rows(OBSERVED, OBSERVED), only_differences=True) == "no differences"
