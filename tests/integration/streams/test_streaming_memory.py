"""Memory of a Streaming API client when one response carries many events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.localorg import LocalOrg

COUNT = 50_000
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "streaming.py"


@pytest.mark.extended
def test_fifty_thousand_events_in_one_response_use_bounded_memory(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Order__e", Number__c="double", Note__c="string")
        org.publish_many("/event/Order__e", COUNT, {"Number__c": 1.5, "Note__c": "{n} " + "x" * 150})
        given = {
            "token": org.token(),
            "instance_url": org.instance_url,
            "org_id": org.org_id,
            "target": "",
            "count": COUNT,
        }
        done = subprocess.run(
            [sys.executable, str(BENCHMARK), "--side", "bare"],
            env={**os.environ, "SFSTREAM_BENCHMARK": json.dumps(given)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        connects = [request["detail"]["events"] for request in org.requests("cometd", "/meta/connect")]
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["events"] == COUNT
    assert max(connects) == COUNT, "one response of more than 20 MB carries all events"
    assert figures["peak_mib_above_idle"] < 40
