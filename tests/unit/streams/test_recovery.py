"""Retries with a limit, as in a drain, and without one, as in a watch; gaps of accepted losses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_sfstream.exceptions import (
    ContactError,
    ReplayIdLostError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.streams.recovery import ReplayLosses, Retries

FAULT = ServiceUnavailableError("reset")


def test_unlimited_retries_continue_after_any_number_of_faults():
    retries = Retries("/event/Order__e", None, lambda: 1.0)
    pauses = [retries.pause_after(FAULT) for _ in range(5_000)]
    assert pauses[:9] == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert set(pauses[8:]) == {30}


def test_a_bounded_number_of_retries_can_be_large():
    retries = Retries("/event/Order__e", 3_000, lambda: 0.0)
    assert [retries.pause_after(ThrottledError("slower")) for _ in range(3_000)][-1] == 15
    with pytest.raises(ServiceUnavailableError, match=r"^/event/Order__e: reset, the last of 3001 consecutive faults"):
        retries.pause_after(FAULT)


def test_an_unreachable_endpoint_is_the_first_statement_of_the_error():
    retries = Retries("/event/Order__e", 0, lambda: 0.0)
    fault = ContactError("/event/Order__e: the endpoint does not answer (127.0.0.1:7999). Check the network.")
    with pytest.raises(ContactError, match=r"^/event/Order__e: the endpoint .*\(127.0.0.1:7999\), the last of"):
        retries.pause_after(fault)


def test_unlimited_retries_end_if_a_renewed_session_is_refused():
    retries = Retries("/event/Order__e", None, lambda: 1.0)
    assert retries.pause_after(SessionExpiredError("refused")) == 0
    retries.progressed()
    assert retries.pause_after(SessionExpiredError("refused")) == 0
    assert retries.pause_after(FAULT) == 0.5
    with pytest.raises(SessionExpiredError):
        retries.pause_after(SessionExpiredError("refused"))


def test_gap_of_two_losses_ends_with_the_first_event_after_the_second():
    losses = ReplayLosses("/event/Order__e", "earliest", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    losses.accept(ReplayIdLostError("aged out"), b"\x01", None)
    losses.resumed(b"\x05")
    losses.accept(ReplayIdLostError("reset"), b"\x06", None)
    losses.resumed(b"\x09")
    assert losses.gap is not None
    assert (losses.gap.after, losses.gap.resumed_at) == (b"\x01", b"\x09")


def test_the_gap_of_an_accepted_loss_has_the_reason_of_the_user():
    reason = "accepted by ada, to go on from earliest: known"
    losses = ReplayLosses(
        "/event/Order__e", "earliest", lambda: datetime(2026, 1, 1, tzinfo=UTC), accepted_reason=reason
    )
    losses.accept(ReplayIdLostError("aged out"), b"\x01", None)
    assert losses.gap is not None
    assert losses.gap.reason == reason
    losses.accept(ReplayIdLostError("reset"), b"\x06", None)
    assert losses.gap.reason == "replay ID invalid, on_invalid_replay='earliest'", "the second loss was not accepted"
