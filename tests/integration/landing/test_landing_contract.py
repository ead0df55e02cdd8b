"""The landing tests for local files and memory, run on object storage through an Airflow connection."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.storage import list_folder, write_once
from airflow_provider_sfstream.publishing.ledger import AcceptedEvent, PublishLedger, SentEvents
from tests.integration.landing.conftest import connect
from tests.support.cloud_storage import CloudStorage, azure, google
from tests.unit.landing import test_catalog, test_intervals, test_parquet

__all__ = ["azure", "google"]

pytestmark = pytest.mark.extended
ID = "00000000-0000-5000-8000-00000000000{}"
ACCEPTED = AcceptedEvent(ID.format(1), b"\x01\x00")


@pytest.fixture(params=["object_storage", "azure", "google"])
def landing(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> Landing:
    """Open a landing as the operators do, on each kind of object storage."""
    storage = request.getfixturevalue(request.param)
    if isinstance(storage, CloudStorage):
        return open_landing(storage.url(), storage.connect(monkeypatch)).landing
    return open_landing(url, connect(monkeypatch, storage.airflow_connection())).landing


@pytest.fixture
def catalog(landing: Landing) -> LandingCatalog:
    return LandingCatalog(landing)


def _tests_of_a_landing() -> dict[str, Any]:
    functions = [
        (module.__name__.rpartition(".")[2], name, function)
        for module in (test_catalog, test_intervals, test_parquet)
        for name, function in inspect.getmembers(module, inspect.isfunction)
    ]
    return {
        f"{name}__{module}": function
        for module, name, function in functions
        if name.startswith("test_") and {"landing", "catalog"} & inspect.signature(function).parameters.keys()
    }


globals().update(_tests_of_a_landing())


def test_check_of_a_landing_leaves_no_file(landing: Landing) -> None:
    landing.check_writable()
    assert list_folder(landing.filesystem, landing.base) == []


def test_of_eight_writers_of_one_file_one_writes_it(landing: Landing) -> None:
    start, path = threading.Barrier(8), f"{landing.base}/once"

    def write(number: int) -> bool:
        start.wait()
        return write_once(landing.filesystem, path, str(number).encode())

    with ThreadPoolExecutor(8) as writers:
        wrote = list(writers.map(write, range(8)))
    assert wrote.count(True) == 1
    assert landing.filesystem.cat_file(path) == str(wrote.index(True)).encode()


def sent(number: int) -> SentEvents:
    return [(ID.format(number + 1), number, None)]


def test_only_one_of_two_tries_begins_a_request_and_a_third_reads_both(landing: Landing) -> None:
    folder = f"{landing.base}/dag/task/run"
    one, other, third = (PublishLedger(landing.filesystem, folder, f"{landing.url}/run") for _ in range(3))
    assert one.source() is None
    assert one.read([]).next_number == 0
    one.record_source({"key": None, "trail": []})
    with pytest.raises(PositionConflictError):
        other.record_source({"key": "Id", "trail": []})
    one.begin(0, "one", sent(0))
    with pytest.raises(PositionConflictError, match=r"requests/000000\.json"):
        other.begin(0, "other", sent(0))
    one.finish(0, [{"id": ACCEPTED.event_id, "replay_id": ACCEPTED.replay_id.hex()}])
    one.begin(1, "one", sent(1))
    one.fail("one", 0, [{"row": 5, "values": {"Note__c": b"\xff"}}])
    recorded = third.read([])
    assert recorded.has_accepted(ACCEPTED.event_id)
    assert recorded.unanswered == {1: sent(1)}
    assert recorded.trail == (ACCEPTED,)
    for _ in range(2):
        third.write_trail(recorded.latest)
    assert third.previous_trail() == [[ACCEPTED.event_id, "0100"]]
    assert third.source() == {"key": None, "trail": []}
