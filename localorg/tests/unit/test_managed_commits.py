"""Acknowledgements and faults of commits."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from sfstream_localorg.managed.commits import COMMIT_ERRORS, Acknowledgements, CommitResult
from sfstream_localorg.managed.faults import LOSE_COMMIT, REFUSE_COMMIT, ManagedFaults
from sfstream_localorg.streams.endings import CallEnded


def result(number: int, error: str | None = None) -> CommitResult:
    return CommitResult(str(number), b"id", 1_700_000_000_000, error)


def test_each_commit_is_acknowledged_immediately_by_default() -> None:
    acknowledgements = Acknowledgements()
    assert (bool(acknowledgements), acknowledgements.due_at(1, 9.0)) == (False, None)
    acknowledgements.add(result(1), 5.0)
    assert (bool(acknowledgements), acknowledgements.due_at(1, 9.0)) == (True, 5.0)
    assert acknowledgements.take() == result(1)
    assert not acknowledgements


def test_several_commits_are_acknowledged_together() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.add(result(1), 5.0)
    acknowledgements.add(result(2), 6.0)
    assert acknowledgements.due_at(3, 9.0) == 14.0
    acknowledgements.add(result(3), 7.0)
    assert acknowledgements.due_at(3, 9.0) == 5.0
    assert acknowledgements.take() == result(3)
    assert not acknowledgements


def test_failed_commit_is_acknowledged_separately_and_immediately() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.add(result(1), 5.0)
    acknowledgements.add(result(2, "older"), 6.0)
    acknowledgements.add(result(3), 7.0)
    assert acknowledgements.due_at(9, 9.0) == 5.0
    assert acknowledgements.take() == result(1)
    assert acknowledgements.due_at(9, 9.0) == 6.0
    assert acknowledgements.take() == result(2, "older")
    assert acknowledgements.due_at(9, 9.0) == 16.0


def test_commit_results_as_responses() -> None:
    answer = result(1).as_response()
    assert (answer.commit_request_id, answer.replay_id, answer.process_time) == ("1", b"id", 1_700_000_000_000)
    assert not answer.HasField("error")
    refusal = result(1, "older").as_response()
    assert (refusal.error.code, refusal.error.msg) == (pb.COMMIT, COMMIT_ERRORS["older"])


def test_commit_faults_count_down_for_one_subscription() -> None:
    faults = ManagedFaults()
    faults.add(REFUSE_COMMIT, {"developer_name": "A", "error": "older", "times": 2, "after": 1})
    assert faults.take("B") is None
    assert faults.take("A") is None
    for left in (1, 0):
        fault = faults.take("A")
        assert fault is not None
        assert (fault.error, fault.ending) == ("older", None)
        assert len(faults.as_list()) == left
    assert faults.take("A") is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, CallEnded("reset")),
        ({"how": "none"}, None),
        ({"how": "end"}, CallEnded("end")),
        ({"how": "error", "code": "", "status": "UNAVAILABLE"}, CallEnded("error", "", "UNAVAILABLE")),
    ],
)
def test_ending_of_a_stream_with_a_lost_commit(body: dict[str, Any], expected: CallEnded | None) -> None:
    faults = ManagedFaults()
    faults.add(LOSE_COMMIT, body)
    fault = faults.take("A")
    assert fault is not None
    assert fault.ending == expected


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (REFUSE_COMMIT, {"error": "nonsense"}),
        (REFUSE_COMMIT, {"how": "end"}),
        (REFUSE_COMMIT, {"times": 0}),
        (REFUSE_COMMIT, {"times": True}),
        (LOSE_COMMIT, {"after": -1}),
        (LOSE_COMMIT, {"error": "older"}),
        (LOSE_COMMIT, {"how": "softly"}),
        (LOSE_COMMIT, {"status": "NICE"}),
    ],
)
def test_invalid_commit_faults_are_refused(name: str, body: dict[str, Any]) -> None:
    faults = ManagedFaults()
    with pytest.raises(ValueError):
        faults.add(name, body)
    assert faults.as_list() == []
