"""Number of documents that a backfill or a cleared run reads in a landing with many windows."""

from __future__ import annotations

import pytest

from tests.support.hourly_landing import HourlyLanding, hour

WINDOWS = 2_000


@pytest.fixture(scope="module")
def landing() -> HourlyLanding:
    return HourlyLanding(WINDOWS)


@pytest.mark.parametrize("number", [2, 30, 700, 1_500, WINDOWS - 2])
def test_a_backfill_of_an_old_hour_reads_few_documents(landing: HourlyLanding, number: int) -> None:
    landing.files.counted()

    outcome = landing.backfill(number)

    documents, listings = landing.files.counted()
    print(f"backfill of hour {number}: {documents} documents, {listings} listings")
    assert landing.live[number] in [each.manifest.window for each in outcome.windows]
    assert outcome.missing == ()
    assert documents < 150
    assert listings < 15


@pytest.mark.parametrize("number", [0, 30, 700, 1_500, WINDOWS - 1])
def test_a_cleared_run_reads_few_documents(landing: HourlyLanding, number: int) -> None:
    landing.files.counted()

    outcome = landing.clear(number)

    documents, listings = landing.files.counted()
    print(f"clearing hour {number}: {documents} documents, {listings} listings")
    assert outcome.manifest.window == landing.live[number]
    assert not outcome.drained
    assert documents < 100
    assert listings < 5


def test_a_landing_without_an_index_is_read_once() -> None:
    landing = HourlyLanding(600)
    landing.remove_index()

    first = landing.backfill(30)
    documents, _ = landing.files.counted()
    assert 600 <= documents < 1_500

    second = landing.backfill(40)
    documents, listings = landing.files.counted()
    assert landing.live[30] in [each.manifest.window for each in first.windows]
    assert landing.live[40] in [each.manifest.window for each in second.windows]
    assert documents < 200
    assert listings < 15


def test_read_only_landing_without_an_index_is_read(caplog: pytest.LogCaptureFixture) -> None:
    landing = HourlyLanding(100)
    landing.remove_index()
    landing.files.read_only = True
    store = landing.landed().store

    assert store.windows_overlapping(landing.stream, hour(30), hour(31)) == landing.live[29:31]
    assert store.window_before(landing.stream, hour(30)) == landing.live[29]
    assert "could not be written" not in [
        record.getMessage() for record in caplog.records if record.levelname != "INFO"
    ]
