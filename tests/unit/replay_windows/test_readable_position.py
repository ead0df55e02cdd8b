"""Evidence that Salesforce can still read a recorded position."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.replay_windows.positions import ReadablePosition
from tests.support.scripted_source import Deliver, End, Keepalive, ScriptedSource, Silence, Step, events

TOPIC = "/event/Order__e"


def reading(source: ScriptedSource, *, may_have_aged_out: bool = False) -> ReadablePosition:
    return ReadablePosition(source, TOPIC, source.stream[1].replay_id, may_have_aged_out=may_have_aged_out)


@pytest.mark.parametrize("step", [Deliver(100), Keepalive()], ids=["an event", "an empty response"])
@pytest.mark.parametrize("silence", [0.0, 2.0])
def test_a_response_shows_that_the_position_is_read(step: Step, silence: float) -> None:
    source = ScriptedSource(events(5), [Silence(silence), step])
    with reading(source) as position:
        assert position.is_read(10.0)
    assert (source.limits, source.open_subscriptions) == ([1], 0)


def test_missing_response_is_no_evidence() -> None:
    source = ScriptedSource(events(5), [Silence(60.0), Deliver(1)])
    with reading(source) as position:
        assert not position.is_read(10.0)
    assert source.time.seconds == pytest.approx(10.0, abs=0.1)
    assert source.open_subscriptions == 0


def test_a_subscription_that_ends_without_a_response_is_no_evidence() -> None:
    source = ScriptedSource(events(5), [End()])
    with reading(source) as position:
        assert not position.is_read(10.0)


def test_a_refused_position_is_an_error() -> None:
    source = ScriptedSource(events(5), retained_from=3)
    with pytest.raises(ReplayIdLostError), reading(source):
        pass
    assert source.open_subscriptions == 0


def test_a_refused_position_that_may_have_aged_out_is_no_evidence() -> None:
    source = ScriptedSource(events(5), retained_from=3)
    with reading(source, may_have_aged_out=True) as position:
        assert not position.is_read(10.0)
    assert source.open_subscriptions == 0
