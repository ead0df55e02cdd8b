"""Responses of a filtered channel before its first match, with a large backlog of events that the filter drops.

The question is open: Salesforce documents that a server may respond, and advance the replay ID, while it still seeks
(Knowledge article 005321562). If it sends empty responses before the event, these do not confirm the end of the stream.
"""

from __future__ import annotations

import secrets
from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.calls import Stream
from live_check.events import publish, publish_undelivered, sample, sample_schema
from live_check.probe import probe
from live_check.run import SAMPLE_EVENT, ProbeRun, SkippedError, now

VISIBLE_SECONDS = 120.0
FIRST_SECONDS, ANCHOR_SECONDS, ANCHORS = 2.0, 20.0, 3
EVENT_SECONDS = 400.0
"""Longer than the 270 seconds after which Salesforce sends an empty response."""
LAST_SECONDS = ANCHORS * ANCHOR_SECONDS + VISIBLE_SECONDS + 2 * EVENT_SECONDS


@probe(
    "Does an empty response come while a filtered channel seeks through a large backlog?",
    events=10,
    lasts=LAST_SECONDS,
    has_backlog=True,
)
def filtered_backlog(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    wanted = f"live check {secrets.token_hex(4)}"
    channel = _make_channel(run, wanted)
    start = _anchor(run, channel, wanted)
    backlog = publish_undelivered(run, run.org.backlog)
    match = _publish_match(run, wanted)
    run.measured["backlog"] = float(len(backlog))
    with Stream(run) as stream:
        stream.send(topic_name=channel, replay_preset=pb.CUSTOM, replay_id=start, num_requested=100)
        empty, event = _until_event(run, stream)
    places = [_place(replay_id, start, backlog[-1], match) for replay_id in empty]
    return {
        "first_event": "the one that matches" if event == match else "another" if isinstance(event, bytes) else event,
        "empty_responses_before_it": places,
        "resumed_from_the_last_of_them": _resumed(run, channel, empty[-1], match) if empty else "there is none",
    }


def _make_channel(run: ProbeRun, wanted: str) -> str:
    """Create a channel with the sample events whose order number is ``wanted``; return its topic.

    :raises SkippedError: if the user may not create it, or the Pub/Sub API does not show it in time.
    """
    name = f"Airflow_Live_Check_{secrets.token_hex(4)}"
    channel = {"channelType": "event", "label": name}
    run.make("/tooling/sobjects/PlatformEventChannel", {"FullName": f"{name}__chn", "Metadata": channel})
    member = {
        "eventChannel": f"{name}__chn",
        "selectedEntity": SAMPLE_EVENT.removeprefix("/event/"),
        "filterExpression": f"Order_Number__c = '{wanted}'",
    }
    run.make("/tooling/sobjects/PlatformEventChannelMember", {"FullName": f"{name}_chn_Order", "Metadata": member})
    topic = f"/event/{name}__chn"
    began = now()
    while True:
        try:
            run.topic(topic)
        except SkippedError:
            if now() - began > VISIBLE_SECONDS:
                raise
            run.pause(2.0)
        else:
            run.measured["channel_visible"] = round(now() - began, 3)
            return topic


def _publish_match(run: ProbeRun, wanted: str) -> bytes:
    user = run.org.login.token.user_id or "005000000000000AAA"
    event = sample(sample_schema(run), created_ms=1_700_000_000_000, created_by=user, Order_Number__c=wanted)
    return bytes(publish(run, event).results[0].replay_id)


def _anchor(run: ProbeRun, channel: str, wanted: str) -> bytes:
    """Publish matching events until the channel delivers one; return the replay ID of the last event.

    :raises SkippedError: if the channel delivers none.
    """
    with Stream(run) as stream:
        stream.send(topic_name=channel, replay_preset=pb.LATEST, num_requested=1)
        stream.next(FIRST_SECONDS)
        for _ in range(ANCHORS):
            last = _publish_match(run, wanted)
            if stream.events(1, ANCHOR_SECONDS):
                return last
    raise SkippedError(f"the new channel delivered none of {ANCHORS} events that match its filter")


def _until_event(run: ProbeRun, stream: Stream) -> tuple[list[bytes], Any]:
    """Return the replay IDs of the empty responses before the first event, and the event's replay ID.

    If no event arrives, the second value describes the reason.
    """
    empty: list[bytes] = []
    until = now() + EVENT_SECONDS
    while (arrived := stream.next(max(0.0, until - now()))) is not None:
        if arrived.end is not None:
            return empty, arrived.end
        if arrived.response.events:
            run.measured["event"] = round(arrived.at - stream.began, 3)
            return empty, bytes(arrived.response.events[0].replay_id)
        empty.append(bytes(arrived.response.latest_replay_id))
        run.measured[f"empty_response_{len(empty)}"] = round(arrived.at - stream.began, 3)
    return empty, "never seen"


def _place(replay_id: bytes, after: bytes, last_dropped: bytes, match: bytes) -> str:
    """Return the place of a replay ID relative to those of the events, by their order."""
    if len(replay_id) != len(match):
        return f"{len(replay_id)} bytes"
    if replay_id <= after:
        return "before the backlog"
    if replay_id < last_dropped:
        return "within the backlog"
    return "after the backlog, before the event" if replay_id < match else "not before the event"


def _resumed(run: ProbeRun, channel: str, replay_id: bytes, match: bytes) -> Any:
    """Return whether a stream after this replay ID still delivers the event."""
    with Stream(run) as stream:
        stream.send(topic_name=channel, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=1)
        _, event = _until_event(run, stream)
    return "the event" if event == match else "another event" if isinstance(event, bytes) else event


PROBES = [filtered_backlog]
