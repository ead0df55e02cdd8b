"""Parquet files of a window: all events in order, and no file after a failure."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.landing.row_groups import PartWriter
from airflow_provider_sfstream.salesforce.streams import window_id_for
from tests.support.scripted_source import SCHEMA, SCHEMA_ID
from tests.support.windows import DUE, RECEIVED, STREAM, batch, run_identity

WINDOW = window_id_for(run_identity(), "live", None)


def writer(landing, attempt="1-aa", schema=lambda schema_id: SCHEMA, **sizes):
    return ParquetWindowWriter(landing, STREAM, WINDOW, attempt=attempt, schema=schema, **sizes)


def in_a_process(code: str, *arguments: str) -> str:
    """Run ``code`` in a separate process and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(landing, landed) -> pa.Table:
    folder = landing.window_folder(STREAM, WINDOW)
    tables = []
    for file in landed.files:
        data = landing.filesystem.cat_file(f"{folder}/{file.name}")
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.bytes, file.sha256)
        table = pq.read_table(pa.BufferReader(data))
        assert table.num_rows == file.rows
        tables.append(table)
    return pa.concat_tables(tables)


@pytest.mark.parametrize(
    "sizes",
    [{}, {"row_group_rows": 7}, {"row_group_bytes": 100, "part_bytes": 1}, {"row_group_rows": 50, "part_bytes": 1000}],
)
def test_rows_are_the_events_in_order_with_the_contracted_columns(landing, sizes):
    batches = [batch(0, 100), batch(100, 1), batch(101, 60), batch(161, 39)]
    with writer(landing, **sizes) as open_writer:
        for one in batches:
            open_writer.append(one)
        landed = open_writer.finish()
    table = read(landing, landed)

    assert table.schema == pa.schema(
        [
            pa.field("ordinal", pa.int64(), nullable=False),
            pa.field("replay_id", pa.binary(), nullable=False),
            pa.field("event_id", pa.string()),
            pa.field("schema_id", pa.string(), nullable=False),
            pa.field("payload", pa.binary(), nullable=False),
            pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
        ]
    )
    assert table["ordinal"].to_pylist() == list(range(200))
    for column, attribute in (
        ("replay_id", "replay_ids"),
        ("event_id", "event_ids"),
        ("schema_id", "schema_ids"),
        ("payload", "payloads"),
    ):
        assert table[column].to_pylist() == [value for one in batches for value in getattr(one, attribute)]
    assert table["received_at"].cast(pa.int64()).to_pylist()[:2] == [RECEIVED // 1000] * 2
    assert landed.event_count == 200
    assert landed.payload_bytes == sum(len(payload) for one in batches for payload in one.payloads)
    assert (landed.first_event_time, landed.last_event_time) == (DUE, DUE + timedelta(seconds=199))
    if "part_bytes" in sizes:
        assert len(landed.files) > 1
    assert [file.name for file in landed.files] == [f"part-{n:05d}-1-aa.parquet" for n in range(len(landed.files))]


@pytest.mark.parametrize("ids", [[None] * 9, ["é", "", "x"] * 3, [None, "é", "x", None, "", "y", "z", None, None]])
def test_event_ids_keep_their_nulls(landing, ids):
    one = batch(0, 9)
    one.event_ids[:] = ids
    with writer(landing) as open_writer:
        open_writer.append(one)
        landed = open_writer.finish()
    table = read(landing, landed)
    table.validate(full=True)
    assert table["event_id"].to_pylist() == ids


def test_landing_does_not_import_pandas(tmp_path):
    """The import would cost a quarter of a second and 40 MB in every task."""
    code = """
        import sys
        from airflow_provider_sfstream.landing.location import Landing
        from tests.unit.landing.test_parquet import batch, writer
        before = "pandas" in sys.modules
        with writer(Landing.from_url(sys.argv[1])) as open_writer:
            open_writer.append(batch(0, 9))
            open_writer.finish()
        print(before, "pandas" in sys.modules)
    """
    assert in_a_process(code, str(tmp_path)).split() == ["False", "False"]


def test_part_files_are_compressed_with_zstd(tmp_path):
    landing = Landing.from_url(str(tmp_path))
    with writer(landing) as open_writer:
        open_writer.append(batch(0, 10))
        (file,) = open_writer.finish().files
    metadata = pq.read_metadata(f"{landing.window_folder(STREAM, WINDOW)}/{file.name}")
    assert {metadata.row_group(0).column(index).compression for index in range(6)} == {"ZSTD"}


def test_each_schema_is_stored_once_and_found_from_the_manifest(landing):
    other = json.dumps({"type": "record", "name": "Other__e", "fields": []})
    asked = []

    def schema(schema_id):
        asked.append(schema_id)
        return SCHEMA if schema_id == SCHEMA_ID else other

    for attempt in ("1-aa", "2-bb"):
        with writer(landing, attempt, schema) as open_writer:
            for one in (batch(0, 5), batch(5, 5, schema_id="other/../id"), batch(10, 5)):
                open_writer.append(one)
            landed = open_writer.finish()
    assert sorted(asked) == sorted([SCHEMA_ID, "other/../id"] * 2)
    assert (landed.first_event_time, landed.last_event_time) == (DUE, DUE + timedelta(seconds=14))
    for schema_id, text in ((SCHEMA_ID, SCHEMA), ("other/../id", other)):
        folder = landing.window_folder(STREAM, WINDOW)
        path = os.path.normpath(f"{folder}/{landed.schemas[schema_id]}")
        assert landing.filesystem.cat_file(path).decode() == text


def test_a_window_without_events_has_no_files(landing):
    with writer(landing) as open_writer:
        landed = open_writer.finish()
    assert (landed.files, landed.schemas, landed.event_count, landed.first_event_time) == ((), {}, 0, None)


def test_events_land_without_a_schema_and_their_times_are_not_known(landing):
    with writer(landing, schema=lambda schema_id: SCHEMA if schema_id == SCHEMA_ID else None) as open_writer:
        for one in (batch(0, 5), batch(5, 5, schema_id=""), batch(10, 5, schema_id="hidden"), batch(15, 2)):
            open_writer.append(one)
        landed = open_writer.finish()
    assert (
        read(landing, landed)["schema_id"].to_pylist() == [SCHEMA_ID] * 5 + [""] * 5 + ["hidden"] * 5 + [SCHEMA_ID] * 2
    )
    assert landed.without_schema == {"": 5, "hidden": 5}
    assert set(landed.schemas) == {SCHEMA_ID}
    assert (landed.first_event_time, landed.last_event_time) == (DUE, DUE + timedelta(seconds=16))


@pytest.mark.parametrize(("row_group_rows", "bounds"), [(100, (DUE, DUE + timedelta(seconds=14))), (7, (None, None))])
def test_schema_found_during_the_window_is_stored(landing, row_group_rows, bounds):
    """Event time bounds are known only if no event was written before its schema was found."""
    answers = iter([None, None, SCHEMA])
    with writer(landing, schema=lambda schema_id: next(answers), row_group_rows=row_group_rows) as open_writer:
        for one in (batch(0, 10), batch(10, 5)):
            open_writer.append(one)
        landed = open_writer.finish()
    assert read(landing, landed)["ordinal"].to_pylist() == list(range(15))
    assert (landed.without_schema, set(landed.schemas)) == ({}, {SCHEMA_ID})
    assert (landed.first_event_time, landed.last_event_time) == bounds


def test_payloads_without_an_event_time_are_landed(landing):
    garbage = batch(0, 3)
    garbage.payloads[1] = b""
    garbage.payloads[2] = b"\xff" * 40
    with writer(landing) as open_writer:
        open_writer.append(garbage)
        landed = open_writer.finish()
    assert read(landing, landed)["payload"].to_pylist() == garbage.payloads
    assert (landed.first_event_time, landed.last_event_time) == (DUE, DUE)


def test_the_first_event_time_is_not_after_the_first_event_was_received(landing):
    """An event with a time in the future counts at its receipt time, so the bounds must include that time."""
    with writer(landing) as open_writer:
        for one in (batch(600, 1), batch(900, 1)):
            open_writer.append(replace(one, received_at=one.received_at + 60_000_000_000))
        landed = open_writer.finish()
    received = read(landing, landed)["received_at"].to_pylist()
    assert landed.first_event_time == received[0].replace(microsecond=received[0].microsecond // 1000 * 1000)
    assert landed.last_event_time == DUE + timedelta(seconds=900)


def test_concurrent_tries_write_separate_files(landing):
    with writer(landing, "1-aa", row_group_rows=10) as zombie, writer(landing, "2-bb", row_group_rows=10) as retry:
        for first in range(0, 100, 10):
            zombie.append(batch(first, 10))
            retry.append(batch(first, 10, size=30))
        landed_by_zombie, landed_by_retry = zombie.finish(), retry.finish()
    read(landing, landed_by_zombie)
    read(landing, landed_by_retry)


def test_exit_without_finish_removes_the_files(landing):
    with writer(landing, row_group_rows=10, part_bytes=1) as open_writer:
        for first in range(0, 100, 10):
            open_writer.append(batch(first, 10))
    left = landing.filesystem.find(landing.window_folder(STREAM, WINDOW))
    assert not [path for path in left if path.endswith(".parquet")]


@pytest.mark.parametrize("attempt", ["", "../1", "1 2", "x" * 65])
def test_attempt_other_than_a_path_segment_is_refused(landing, attempt):
    with pytest.raises(ConfigurationError, match="attempt="):
        writer(landing, attempt)


def test_unwritable_landing_raises_at_append_or_finish(tmp_path):
    (tmp_path / "file").write_text("in the way")
    landing = Landing.from_url(str(tmp_path / "file"))

    def land():
        with writer(landing, row_group_rows=10) as open_writer:
            for first in range(0, 1000, 10):
                open_writer.append(batch(first, 10))
            open_writer.finish()

    with pytest.raises(LandingError, match="could not be written"):
        land()


def test_failed_write_fails_the_window_even_after_the_storage_recovers(landing, monkeypatch):
    """The rest of the window was not written, so the written part must not count as the whole window."""

    def failing(parts, rows):
        raise OSError("gone for a moment")

    monkeypatch.setattr(PartWriter, "write", failing)
    with writer(landing) as open_writer:
        open_writer.append(batch(0, 10))
        with pytest.raises(LandingError, match="gone for a moment"):
            open_writer.finish()


FULL_DISK = """
    import os, resource, signal, sys
    from airflow_provider_sfstream.exceptions import LandingError
    from airflow_provider_sfstream.landing.location import Landing
    from tests.unit.landing.test_parquet import WINDOW, writer
    from tests.support.windows import STREAM, batch
    from dataclasses import replace

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    landing = Landing.from_url(sys.argv[1])
    appended = 0
    try:
        with writer(landing, row_group_rows=100) as open_writer:
            for first in range(0, 100_000, 100):
                one = batch(first, 100)
                open_writer.append(replace(one, payloads=[os.urandom(400) for _ in one.payloads]))
                appended += 100
            open_writer.finish()
    except LandingError as error:
        print(appended, len(landing.filesystem.ls(landing.window_folder(STREAM, WINDOW))), error)
"""


def test_full_storage_fails_the_window_early_and_publishes_nothing(tmp_path):
    """The file size limit of the process makes the kernel refuse the write, as a full disk does."""
    appended, left, message = in_a_process(FULL_DISK, str(tmp_path)).split(" ", 2)
    assert int(appended) < 10_000
    assert left == "0"
    assert "could not be written (OSError: File too large)" in message
    assert "not moved" in message
