"""Interval records: written once, read by every later try of the run, and refused when invalid."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError, ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.intervals import (
    INTERVAL_DOCUMENT,
    IntervalRecord,
    RecordedWindow,
    interval_id_for,
    read_interval,
    write_interval,
)
from airflow_provider_sfstream.salesforce.streams import Span, Stream
from tests.support.windows import DUE, STREAM, run_identity

HOUR = timedelta(hours=1)
INTERVAL = Span(DUE - HOUR, DUE)


@pytest.fixture
def catalog(landing):
    return LandingCatalog(landing)


def record(number: int = 0, **changes: object) -> IntervalRecord:
    original = IntervalRecord(
        stream=STREAM,
        run=run_identity(number),
        interval=INTERVAL,
        windows=(
            RecordedWindow("20260131T110000Z-00", "memory:///lake/w1/manifest.json", "landed"),
            RecordedWindow("20260131T120000Z-01", "memory:///lake/w2/manifest.json", "bus"),
        ),
        missing=(Span(DUE - HOUR, DUE - HOUR / 2),),
        confirmed_at=DUE + timedelta(minutes=1),
        created_at=DUE + timedelta(minutes=5),
        provider_version="0",
    )
    return replace(original, **changes)  # type: ignore[arg-type]


def path_of(catalog: LandingCatalog, one: IntervalRecord) -> str:
    return catalog.landing.interval_path(one.stream, one.interval_id)


def put(catalog: LandingCatalog, path: str, text: str) -> None:
    catalog.landing.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    catalog.landing.filesystem.pipe_file(path, text.encode())


@pytest.mark.parametrize("one", [record(), record(windows=(), missing=())], ids=["full", "empty"])
def test_a_record_is_read_as_it_was_written(catalog, one):
    assert read_interval(catalog, STREAM, one.run, INTERVAL) is None
    assert write_interval(catalog, one) == one
    assert read_interval(catalog, STREAM, one.run, INTERVAL) == one
    assert INTERVAL_DOCUMENT.from_json(INTERVAL_DOCUMENT.to_json(one), "x") == one


def test_every_try_of_the_run_reads_the_record_and_no_other_run_does(catalog):
    one = write_interval(catalog, record())
    again = replace(one.run, try_number=3)
    assert read_interval(catalog, STREAM, again, INTERVAL) == one
    for other in (
        replace(one.run, run_id="other"),
        replace(one.run, map_index=1),
        replace(one.run, task_id="other"),
        replace(one.run, dag_id="other"),
    ):
        assert read_interval(catalog, STREAM, other, INTERVAL) is None
    assert read_interval(catalog, replace(STREAM, subscription="other"), one.run, INTERVAL) is None
    assert read_interval(catalog, STREAM, one.run, Span(DUE - HOUR, DUE + HOUR)) is None


def test_second_writer_adopts_the_first_record(catalog):
    first = write_interval(catalog, record())
    second = replace(first, run=replace(first.run, try_number=2), windows=(), missing=())
    assert write_interval(catalog, second) == first
    assert read_interval(catalog, STREAM, second.run, INTERVAL) == first


def test_concurrent_writers_all_return_one_record(catalog):
    candidates = [record(provider_version=str(number)) for number in range(8)]
    results: list[IntervalRecord] = []
    barrier = threading.Barrier(len(candidates))

    def write(candidate: IntervalRecord) -> None:
        barrier.wait()
        results.append(write_interval(catalog, candidate))

    threads = [threading.Thread(target=write, args=(candidate,)) for candidate in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(candidates)
    if catalog.landing.url.startswith("file"):  # the memory filesystem has no conditional write
        assert set(results) == {read_interval(catalog, STREAM, candidates[0].run, INTERVAL)}


def test_interval_ids_sort_by_start_and_are_equal_in_every_time_zone():
    run = run_identity()
    local = timezone(timedelta(hours=5, minutes=30))
    elsewhere = Span(INTERVAL.start.astimezone(local), INTERVAL.end.astimezone(local))
    assert interval_id_for(run, elsewhere) == interval_id_for(run, INTERVAL)
    assert interval_id_for(run, INTERVAL).startswith("20260131T110000Z-")
    ids = [interval_id_for(run, Span(DUE + n * HOUR, DUE + (n + 1) * HOUR)) for n in range(48)]
    assert ids == sorted(set(ids))


def test_record_is_stored_under_the_start_day_of_its_interval(catalog):
    night = Span(datetime(2026, 1, 31, 23, tzinfo=UTC), datetime(2026, 2, 1, 1, tzinfo=UTC))
    one = record(interval=night)
    assert path_of(catalog, one) == f"{catalog.landing.base}/{STREAM.path}/intervals/2026/01/31/{one.interval_id}.json"


@pytest.mark.parametrize("interval_id", ["", "..", "20260131/../x", "20261331T000000Z-00", "today", "20260131.json"])
def test_invalid_interval_id_is_refused(catalog, interval_id):
    with pytest.raises(ConfigurationError, match="Invalid interval ID"):
        catalog.landing.interval_path(STREAM, interval_id)


def test_names_from_outside_cannot_leave_the_landing(catalog):
    stream = Stream("..", "pubsub", "/event/../../x", "../other")
    run = replace(run_identity(), dag_id="../../x", run_id="../y", task_id="/z")
    one = write_interval(catalog, record(stream=stream, run=run))
    assert read_interval(catalog, stream, run, INTERVAL) == one
    path = path_of(catalog, one)
    assert path.startswith(catalog.landing.base + "/")
    assert ".." not in path.split("/")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "\xff",
        '{"format": "sfstream-manifest", "version": 1}',
        '{"format": "sfstream-interval", "version": 99}',
        '{"format": "sfstream-interval", "version": 1}',
    ],
)
def test_a_broken_or_foreign_record_is_refused(catalog, text):
    one = record()
    put(catalog, path_of(catalog, one), text)
    for reading in (
        lambda: read_interval(catalog, STREAM, one.run, INTERVAL),
        lambda: write_interval(catalog, one),
    ):
        with pytest.raises(ManifestError, match=r"\.json is (an?|not an?) .*interval record"):
            reading()


@pytest.mark.parametrize(
    "change",
    [
        {"windows": [{"window_id": "w", "manifest_url": "u", "origin": "elsewhere"}]},
        {"windows": [{"window_id": "w", "manifest_url": None, "origin": "bus"}]},
        {"windows": [{"window_id": "w", "manifest_url": "u", "origin": "bus", "more": 1}]},
        {"windows": None},
        {"interval": {"start": "2026-01-31T11:00:00", "end": "2026-01-31T12:00:00"}},
        {"interval": {"start": "2026-01-31T12:00:00+00:00", "end": "2026-01-31T12:00:00+00:00"}},
        {"missing": [{"start": "today", "end": "tomorrow"}]},
        {"stream": {"org_id": "", "api": "pubsub", "topic": "/event/X__e", "subscription": "airflow"}},
        {"run": {}},
    ],
)
def test_changed_record_is_refused_with_a_remedy(catalog, change):
    one = record()
    put(catalog, path_of(catalog, one), json.dumps({**json.loads(INTERVAL_DOCUMENT.to_json(one)), **change}))
    with pytest.raises(ManifestError, match=r"not a readable interval record.*Remove the file and run the task again"):
        read_interval(catalog, STREAM, one.run, INTERVAL)


@pytest.mark.parametrize(
    "other",
    [
        record(stream=replace(STREAM, topic="/event/Other__e")),
        record(number=1),
        record(interval=Span(DUE, DUE + HOUR)),
    ],
    ids=["stream", "run", "interval"],
)
def test_record_copied_to_another_place_is_refused(catalog, other):
    one = record()
    put(catalog, path_of(catalog, one), INTERVAL_DOCUMENT.to_json(other))
    with pytest.raises(ManifestError, match="copied or moved"):
        read_interval(catalog, STREAM, one.run, INTERVAL)


def test_failed_write_or_read_of_a_record_raises_a_landing_error(catalog, monkeypatch):
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("airflow_provider_sfstream.landing.intervals.write_once", refuse)
    with pytest.raises(LandingError, match=r"could not be written.*Permission denied"):
        write_interval(catalog, record())
    monkeypatch.setattr(catalog.landing.filesystem, "cat_file", refuse)
    with pytest.raises(LandingError, match=r"could not be read.*Permission denied"):
        read_interval(catalog, STREAM, run_identity(), INTERVAL)


def test_record_removed_during_its_write_asks_to_run_the_task_again(catalog, monkeypatch):
    monkeypatch.setattr("airflow_provider_sfstream.landing.intervals.write_once", lambda *arguments: False)
    with pytest.raises(LandingError, match=r"was removed.*Run the task again"):
        write_interval(catalog, record())
