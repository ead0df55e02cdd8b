"""Managed event subscriptions: commits, their responses, and the limit of one consumer."""

from __future__ import annotations

import secrets
from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.calls import Stream
from live_check.events import published
from live_check.probe import probe
from live_check.probes.refusals import NEVER_GIVEN
from live_check.run import MANAGED_SUBSCRIPTION, SAMPLE_EVENT, ProbeRun, now

ANSWER_SECONDS = 30.0
VISIBLE_SECONDS = 200.0


@probe("How are valid and invalid commits answered?", events=12)
def managed_commits(run: ProbeRun) -> Any:
    run.managed_id()
    last = published(run, 3)[-1]
    with Stream(run, "ManagedSubscribe") as stream:
        stream.send(developer_name=MANAGED_SUBSCRIPTION, num_requested=1)
        first = _event(stream)
        stream.send(num_requested=1)
        second = _event(stream)
        answers = {
            "delivered": _committed(run, stream, second),
            "again": _committed(run, stream, second),
            "older": _committed(run, stream, first),
            "missing": _committed(run, stream, b""),
            "malformed": _committed(run, stream, b"\x01\x02\x03"),
            "never_given": _committed(run, stream, NEVER_GIVEN),
            "not_delivered": _committed(run, stream, last),
            "stream_goes_on": _goes_on(stream),
            "last_of_three_at_once": _three(stream, second),
        }
    began = now()
    again = _start_again(run)
    answers["slot_free_after_a_clean_end"] = run.seconds("slot_free", None if again is None else now() - began, 20, 120)
    answers["starts_after_the_committed"] = again is not None and again != first and again != second
    return answers


def _event(stream: Stream) -> bytes:
    events = stream.events(1, ANSWER_SECONDS)
    return events[0].replay_id if events else b""


def _committed(run: ProbeRun, stream: Stream, replay_id: bytes) -> Any:
    """Commit a replay ID and return the result."""
    request = pb.CommitReplayRequest(commit_request_id=secrets.token_hex(8), replay_id=replay_id)
    stream.send(num_requested=0, commit_replay_id_request=request)
    began = now()
    answer, response = _answer(stream, request.commit_request_id)
    if answer is None:
        return "no answer"
    run.measured["acknowledged"] = round(now() - began, 3)
    return {
        "error": pb.ErrorCode.Name(answer.error.code) if answer.HasField("error") else None,
        "message": run.org.redact(answer.error.msg),
        "replay_id_echoed": answer.replay_id == replay_id,
        "has_process_time": answer.process_time > 0,
        "latest_replay_id": "given" if response.latest_replay_id else "empty",
        "events_with_it": len(response.events),
    }


def _answer(stream: Stream, request_id: str) -> tuple[Any, Any]:
    until = now() + ANSWER_SECONDS
    while (arrived := stream.next(max(0.0, until - now()))) is not None and arrived.end is None:
        answer = arrived.response.commit_response
        if arrived.response.HasField("commit_response") and answer.commit_request_id == request_id:
            return answer, arrived.response
    return None, None


def _goes_on(stream: Stream) -> bool:
    stream.send(num_requested=1)
    return bool(_event(stream))


def _three(stream: Stream, replay_id: bytes) -> str:
    for number in range(3):
        request = pb.CommitReplayRequest(commit_request_id=f"three-{number}", replay_id=replay_id)
        stream.send(num_requested=0, commit_replay_id_request=request)
    return "no answer" if _answer(stream, "three-2")[0] is None else "answered"


def _start_again(run: ProbeRun) -> bytes | None:
    """Retry to open the subscription until it is free; return the replay ID of the first event that it delivers."""
    until = now() + 120.0
    while now() < until:
        with Stream(run, "ManagedSubscribe") as stream:
            stream.send(developer_name=MANAGED_SUBSCRIPTION, num_requested=1)
            arrived = stream.next(ANSWER_SECONDS)
            if arrived is not None and arrived.end is None:
                events = arrived.response.events
                return events[0].replay_id if events else b""
            run.pause(1.0)
    return None


@probe("How soon does the Pub/Sub API notice that a managed subscription was created or deleted?", waits=420)
def managed_visibility(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    name = f"Airflow_Live_Check_{secrets.token_hex(4)}"
    settings = {"defaultReplay": "LATEST", "errorRecoveryReplay": "LATEST", "state": "RUN", "version": "62.0"}
    metadata = {"label": name, "topicName": SAMPLE_EVENT, **settings}
    path = "/tooling/sobjects/ManagedEventSubscription"
    began = now()
    record_id = run.make(path, {"FullName": name, "Metadata": metadata})
    until_now: dict[str, Any] = {"key_prefix": record_id[:3], "until_then": None}
    while now() - began < VISIBLE_SECONDS:
        with Stream(run, "ManagedSubscribe") as stream:
            stream.send(developer_name=name, num_requested=1)
            arrived = stream.next(2.0)
            if arrived is None or arrived.end is None:
                break
            until_now["until_then"] = arrived.end
        run.pause(2.0)
    seen = run.seconds("visible", now() - began, 10, 60, 190)
    with Stream(run, "ManagedSubscribe") as stream:
        stream.send(developer_name=name, num_requested=1)
        stream.next(2.0)
        began = now()
        run.org.rest("DELETE", f"{path}/{record_id}").raise_for_status()
        end = stream.end(VISIBLE_SECONDS)
    return {**until_now, "visible": seen, "gone": run.seconds("gone", now() - began, 10, 60, 190), "end": end}


@probe("How does a managed stream without commits end?", events=40, waits=2000, is_long=True)
def managed_without_commits(run: ProbeRun) -> Any:
    run.managed_id()
    with Stream(run, "ManagedSubscribe") as stream:
        stream.send(developer_name=MANAGED_SUBSCRIPTION, num_requested=40)
        end = stream.end(2000.0)
        return {"end": end, "after": run.seconds("ended", now() - stream.began, 10, 1750, 1900)}


PROBES = [managed_commits, managed_visibility, managed_without_commits]
