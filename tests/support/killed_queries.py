"""Kills a structured streaming query again and again at random moments, and compares its rows with the org's record."""

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
from pathlib import Path

import psutil

from sfstream_localorg.process import LocalOrg

PROGRAM = Path(__file__).with_name("live_query.py")


@dataclass
class KilledQueries:
    """What a run of them came to: rows that the record has and the output has not, and the other way round."""

    kills: int
    events: int
    batches: int
    windows: int
    lost: int
    repeated: int
    seconds: float


def run(org: LocalOrg, folder: Path, kills: int, seed: int, within: float = 12.0) -> KilledQueries:
    """Kill a query so many times, each within some seconds of its start, while events are published; then let it end.

    ``SIGKILL`` ends the driver and its Java, and in every other case its Python workers with them. In the others these
    live on until they notice, which may be in a drain.
    """
    chance, begun, number = random.Random(seed), time.monotonic(), 0
    org.knobs(keepalive_seconds=0.05)
    topic = str(org.define("Order__e", Number__c="double")["name"])
    connection = json.dumps(org.airflow_connection())
    environment = os.environ | {"AIRFLOW_CONN_SALESFORCE_DEFAULT": connection, "AIRFLOW_HOME": str(folder / "airflow")}
    command = [sys.executable, str(PROGRAM), str(folder), topic]

    def publish() -> None:
        nonlocal number
        count = chance.randint(1, 40)
        org.publish(topic, [{"Number__c": float(each)} for each in range(number, number + count)])
        number += count

    publish()
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
                    publish()
                    time.sleep(chance.uniform(0.02, 0.3))
            finally:
                _kill(query, with_workers=kill % 2 == 0)
        publish()
        found, finish = folder / "found.json", [*command, "--finish", str(folder / "found.json")]
        # A worker that has outlived its driver may move the position first: then a query fails, and is started again.
        for _ in range(3):
            if subprocess.run(finish, env=environment, stderr=log, check=False, timeout=300).returncode == 0:
                break
    rows = Counter((bytes.fromhex(replay_id), value) for replay_id, value in json.loads(found.read_text()))
    published = [event["replay_id"] for event in org.record(topic)]
    record = Counter(zip(published, map(float, range(number)), strict=True))
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
