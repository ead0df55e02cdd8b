"""Structured streaming query, killed repeatedly at random times; its rows are compared with the org's record."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from sfstream_localorg.process import LocalOrg

PROGRAM = Path(__file__).with_name("streaming_query.py")


@dataclass
class KilledQueries:
    """Result of :func:`run`. ``lost`` counts recorded rows missing in the output, ``repeated`` extra output rows."""

    kills: int
    events: int
    batches: int
    windows: int
    lost: int
    repeated: int
    seconds: float


class Publisher:
    """Publisher of events with consecutive numbers, which also drains them into a landing."""

    def __init__(self, org: LocalOrg, topic: str, landing_url: str) -> None:
        self._org, self._topic, self.number, self._windows = org, topic, 0, 0
        catalog = LandingCatalog(Landing.from_url(landing_url))
        store = DocumentReplayStore(catalog, PositionFiles(catalog.landing))
        self._landed = LandedStream(Stream(org.org_id, "pubsub", topic), catalog, store)

    def land(self, count: int) -> None:
        """Publish ``count`` events, and land them as one window."""
        org = self._org
        org.publish(self._topic, [{"Number__c": float(self.number + each)} for each in range(count)])
        self.number += count
        self._windows += 1
        run = RunIdentity("orders", "drain", f"run-{self._windows}", datetime.now(UTC))
        provider = OAuthTokenProvider(
            Credentials("client_credentials", org.instance_url, org.client_id, consumer_secret=org.client_secret)
        )
        with PubSubClient(provider, endpoint=f"http://{org.grpc_target}") as client:
            drain_window(self._landed, WindowRequest(run, DrainLimits(max_events=count)), source=client)


def run(org: LocalOrg, folder: Path, kills: int, seed: int, within: float = 12.0) -> KilledQueries:
    """Kill a query ``kills`` times while events are landed, then run it to its end and compare the rows.

    Each kill follows at most ``within`` seconds after the start. ``SIGKILL`` ends the driver and its Java process, and
    in every second kill also the Python workers. Otherwise the workers run until they notice the lost connection.
    """
    chance, begun = random.Random(seed), time.monotonic()
    topic = str(org.define("Order__e", Number__c="double")["name"])
    publisher = Publisher(org, topic, str(folder / "landing"))
    environment = os.environ | {"AIRFLOW_HOME": str(folder / "airflow")}
    command = [sys.executable, str(PROGRAM), str(folder), topic]
    publisher.land(chance.randint(1, 40))
    log = (folder / "query.log").open("ab")
    with log:
        for kill in range(kills):
            query = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
            try:
                assert query.stdout is not None
                if query.stdout.readline() != b"begun\n":
                    raise AssertionError((folder / "query.log").read_text()[-3000:])
                until = time.monotonic() + chance.uniform(0, within)
                while time.monotonic() < until:
                    publisher.land(chance.randint(1, 40))
                    time.sleep(chance.uniform(0.1, 0.6))
            finally:
                _kill(query, with_workers=kill % 2 == 0)
        publisher.land(chance.randint(1, 40))
        found = folder / "found.json"
        subprocess.run([*command, "--finish", str(found)], env=environment, stderr=log, check=True, timeout=300)
    rows = Counter((bytes.fromhex(replay_id), value) for replay_id, value in json.loads(found.read_text()))
    published = [event["replay_id"] for event in org.record(topic)]
    record = Counter(zip(published, map(float, range(publisher.number)), strict=True))
    return KilledQueries(
        kills=kills,
        events=len(published),
        batches=max(int(path.name) for path in (folder / "checkpoint/commits").glob("[0-9]*")) + 1,
        windows=len(list((folder / "landing").rglob("manifest.json"))),
        lost=sum((record - rows).values()),
        repeated=sum((rows - record).values()),
        seconds=round(time.monotonic() - begun, 1),
    )


def _kill(query: subprocess.Popen[bytes], *, with_workers: bool) -> None:
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        workers = psutil.Process(query.pid).children(recursive=True) if with_workers else []
        os.killpg(query.pid, signal.SIGKILL)
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
    query.wait()
    if query.stdout is not None:
        query.stdout.close()


def as_line(outcome: KilledQueries) -> str:
    return json.dumps({"benchmark": "killed_query", "ratio": 1.0, **asdict(outcome)})
