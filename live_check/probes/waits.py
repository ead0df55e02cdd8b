"""Probes that wait for minutes, in parallel: empty responses, idle streams, pings."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.calls import Stream
from live_check.probe import Probe, probe
from live_check.run import SAMPLE_EVENT, ProbeRun, SkippedError, now

KEEPALIVE_SECONDS = 300.0
PINGS = 5
"""gRPC servers tolerate two pings that arrive too early."""


@probe("When are empty responses sent, and which replay ID do they have?", events=1, waits=600)
def empty_responses(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    with Stream(run) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.LATEST, num_requested=1)
        first, second = stream.next(KEEPALIVE_SECONDS), stream.next(KEEPALIVE_SECONDS)
    if first is None or first.end is not None:
        return {"first": "never seen" if first is None else first.end}
    empty = first.response
    answer = {
        "first": run.seconds("first_empty", first.at - stream.began, 1, 10, 100, 150, 275),
        "events": len(empty.events),
        "replay_id_bytes": len(empty.latest_replay_id),
        "owed": empty.pending_num_requested,
        "can_be_resumed_from": _can_resume(run, empty.latest_replay_id),
    }
    if second is not None and second.end is None:
        later = second.response.latest_replay_id
        run.measured["replay_id_of_the_second_is_higher"] = float(later > empty.latest_replay_id)
        answer["second"] = run.seconds("second_empty", second.at - first.at, 1, 10, 100, 150, 275)
        answer["replay_id_of_the_second"] = "lower" if later < empty.latest_replay_id else "the same or higher"
    return answer


def _can_resume(run: ProbeRun, replay_id: bytes) -> Any:
    with Stream(run) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=1)
        arrived = stream.next(3.0)
    return True if arrived is None or arrived.end is None else arrived.end["error_code"]


@probe("When does a stream without pending requests end?", events=1, waits=200)
def idle_stream(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    with Stream(run) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.EARLIEST, num_requested=1)
        if not stream.events(1, 20.0):
            raise SkippedError("there is no event of the sample platform event to start from; run all probes")
        began = now()
        end = stream.end(180.0)
        return {"end": end, "after": run.seconds("idle", now() - began, 1, 10, 50, 80, 150)}


@probe("When does a PublishStream without requests end?", waits=120)
def idle_publish_stream(run: ProbeRun) -> Any:
    with Stream(run, "PublishStream") as stream:
        end = stream.end(100.0)
        return {"end": end, "after": run.seconds("idle", now() - stream.began, 10, 50, 90)}


def _pinged(run: ProbeRun, seconds: int) -> Any:
    """Return the end of an idle stream whose connection is pinged every ``seconds``."""
    run.topic(SAMPLE_EVENT)
    pinging = run.org.channel(
        ("grpc.keepalive_time_ms", seconds * 1000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
    )
    with Stream(run, channel=pinging) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.LATEST, num_requested=1)
        end = stream.end(seconds * PINGS + 2.0)
        if end["status"].startswith("open"):
            return "tolerated"
        run.measured["ended"] = round(now() - stream.began, 3)
        return {"end": end}


def _ping_probe(seconds: int) -> Probe:
    question = f"Does the server accept a ping every {seconds} s?"
    return Probe(f"pings_{seconds}_s", question, lambda run: _pinged(run, seconds), 1, seconds * PINGS + 2.0)


PROBES = [
    empty_responses,
    idle_stream,
    idle_publish_stream,
    *(_ping_probe(seconds) for seconds in (45, 10, 1)),
]
