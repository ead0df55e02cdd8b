"""Probes of the second part, after the event of the first part has expired: ``--after 73h``."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.bayeux import BayeuxSession, refused
from live_check.calls import Stream
from live_check.probe import AFTER, probe
from live_check.run import MANAGED_SUBSCRIPTION, SAMPLE_EVENT, ProbeRun

END_SECONDS = 8.0


@probe("How is an expired replay ID refused?", events=1, part=AFTER)
def expired_replay_id(run: ProbeRun) -> Any:
    with Stream(run) as stream:
        replay_id = run.org.left_replay_id
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=1)
        arrived = stream.next(END_SECONDS)
    return {"status": "taken"} if arrived is None or arrived.end is None else arrived.end


@probe("How does the Streaming API refuse an expired replay ID?", events=20, part=AFTER)
def expired_cometd_replay_id(run: ProbeRun) -> Any:
    with BayeuxSession(run) as session:
        session.handshake()
        session.connect()
        return refused(run, session.subscribe(SAMPLE_EVENT, int.from_bytes(run.org.left_replay_id[:8], "big")))


@probe("Where does a managed subscription with an expired committed replay ID start?", events=1, part=AFTER)
def expired_commit(run: ProbeRun) -> Any:
    run.managed_id()
    with Stream(run, "ManagedSubscribe") as stream:
        stream.send(developer_name=MANAGED_SUBSCRIPTION, num_requested=1)
        arrived = stream.next(END_SECONDS)
    return "open" if arrived is None or arrived.end is None else arrived.end


PROBES = [expired_replay_id, expired_cometd_replay_id, expired_commit]
