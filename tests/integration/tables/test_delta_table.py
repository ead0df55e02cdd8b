"""Delta table log without Spark, in a folder and on S3: conflicts, lost responses, restored and forgotten versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError, PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.tables.delta.table_files import write_rows
from airflow_provider_sfstream.tables.delta.table_location import TableLocation, storage_options
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.job_config import JobConfig
from tests.support.object_storage import BUCKET, ObjectStorage, object_storage
from tests.support.object_storage_proxy import ObjectStorageProxy

__all__ = ["object_storage"]  # a fixture

SCHEMA = pa.schema([("n", pa.int64()), ("window_id", pa.string())])
PROGRESS = ["sfstream:00D|/event/A"]


def on_s3(storage: ObjectStorage, endpoint: str, name: str) -> TableLocation:
    """Return a location with the options of a session that is configured for Hadoop's connector."""
    settings = {
        "fs.s3a.access.key": storage.user[0],
        "fs.s3a.secret.key": storage.user[1],
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }
    return TableLocation(f"s3://{BUCKET}/{name}", storage_options(f"s3a://{BUCKET}/{name}", settings.get))


@pytest.fixture(params=["file", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> TableLocation:
    if request.param == "file":
        return TableLocation(str(tmp_path / "table"))
    storage = request.getfixturevalue("object_storage")
    return on_s3(storage, storage.endpoint, uuid4().hex)


@pytest.fixture
def proxy(object_storage: ObjectStorage) -> Iterator[ObjectStorageProxy]:
    with ObjectStorageProxy.running(object_storage.port) as proxy:
        yield proxy


def written(location: TableLocation, *numbers: int, window: str = "w1", schema: pa.Schema = SCHEMA) -> list[TableFile]:
    """Write files as executors do and return them."""
    rows = [{"Id": f"{n}", "n": n, "window_id": window, "more": {"x": n}} for n in numbers]
    return write_rows(location, [pa.RecordBatch.from_pylist(rows, schema=schema)])


def rows(location: TableLocation, column: str = "n") -> list[Any]:
    table = DeltaTable(location.uri, storage_options=dict(location.options)).to_pyarrow_table()
    return [row[column] for row in sorted(table.to_pylist(), key=lambda row: row["n"])]


def test_files_are_replaced_in_one_commit_and_columns_are_added(location: TableLocation) -> None:
    log = DeltaTableLog(location, "the job")
    none = log.version(progress=PROGRESS)
    assert (none.number, none.files, none.progress, none.schema_json) == (-1, {}, {PROGRESS[0]: None}, "")
    log.commit(none, SCHEMA, written(location, 1, 2), [])
    wider = SCHEMA.append(pa.field("more", pa.struct([("x", pa.int64())])))
    read = log.version(progress=PROGRESS)
    number = log.commit(read, wider, written(location, 3, schema=wider), list(read.files))
    assert rows(location) == [3]
    assert rows(location, "more") == [{"x": 3}]
    grown = SCHEMA.append(pa.field("more", pa.struct([("x", pa.int64()), ("y", pa.string())])))
    read = log.version(progress=PROGRESS)
    last = log.commit(read, grown, written(location, 4), [])
    assert rows(location, "more") == [{"x": 3, "y": None}, None]
    assert (read.number, last) == (number, number + 2), "one version adds the columns, another one the rows"
    assert log.version(0).files.keys() != log.version().files.keys()
    with pytest.raises(ConfigurationError, match="no version 99"):
        log.version(99)


def test_the_second_of_two_jobs_of_a_stream_fails_and_names_the_first(location: TableLocation) -> None:
    one, two, other = (DeltaTableLog(location, job) for job in ("dag.one run 1", "dag.two run 1", "dag.other run 1"))
    one.commit(one.version(progress=PROGRESS), SCHEMA, written(location, 0), [])
    read = two.version(progress=PROGRESS)
    one.commit(one.version(progress=PROGRESS), SCHEMA, written(location, 1), [])
    elsewhere = other.version(progress=["sfstream:00D|/event/B"])
    other.commit(elsewhere, SCHEMA, written(location, 2), [])
    added = SCHEMA.append(pa.field("more", pa.struct([("x", pa.int64())])))
    with pytest.raises(
        PositionConflictError, match=r"version 1, dag\.one run 1\. The commit of this job was rejected"
    ) as caught:
        two.commit(read, added, written(location, 3), [])
    assert caught.value.retriable
    assert rows(location) == [0, 1, 2]
    assert [field.name for field in one.table().schema().fields] == SCHEMA.names, "no column of the rejected commit"


def test_a_commit_without_a_conflict_does_not_open_the_log_again(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, wider = DeltaTableLog(location), SCHEMA.append(pa.field("more", pa.struct([("x", pa.int64())])))
    none, files = log.version(progress=PROGRESS), [written(location, number) for number in range(2)]
    with monkeypatch.context() as patch:
        patch.delattr(DeltaTableLog, "_open")
        assert log.commit(none, SCHEMA, files[0], []) == 0
    read = log.version(progress=PROGRESS)
    with monkeypatch.context() as patch:
        patch.delattr(DeltaTableLog, "_open")
        assert log.commit(read, wider, files[1], []) == 2, "version 1 adds the column"
    assert rows(location) == [0, 1]


def test_one_of_many_concurrent_jobs_of_a_stream_commits(location: TableLocation) -> None:
    """All jobs have read the same version; only the storage decides which commit is first."""
    first = DeltaTableLog(location)
    first.commit(first.version(progress=PROGRESS), SCHEMA, written(location, 0), [])
    jobs = [DeltaTableLog(location, f"job {number}") for number in range(4)]
    read = [job.version(progress=PROGRESS) for job in jobs]
    files = [written(location, number) for number in range(1, 5)]

    def commit(number: int) -> str:
        try:
            return str(jobs[number].commit(read[number], SCHEMA, files[number], []))
        except PositionConflictError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(commit, range(4)))
    winner = results.index("1")
    assert rows(location) == [0, 1 + winner]
    assert all(f"version 1, job {winner}." in each for number, each in enumerate(results) if number != winner)


def test_concurrent_jobs_of_different_streams_all_commit_to_a_new_table(location: TableLocation) -> None:
    jobs = [DeltaTableLog(location, f"job {number}") for number in range(4)]
    read = [job.version(progress=[f"sfstream:00D|{number}"]) for number, job in enumerate(jobs)]
    files = [written(location, number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda n: jobs[n].commit(read[n], SCHEMA, files[n], []), range(4)))
    assert sorted(versions) == [0, 1, 2, 3]
    assert rows(location) == [0, 1, 2, 3]


def commit_new(location: TableLocation, files: list[TableFile]) -> int:
    """Create a table from files, as a job in another process does."""
    log = DeltaTableLog(location, "the job")
    return log.commit(log.version(progress=PROGRESS), SCHEMA, files, [])


def test_a_first_commit_whose_response_was_lost_is_found_in_the_log(
    object_storage: ObjectStorage, proxy: ObjectStorageProxy
) -> None:
    """The store has written the commit, but the client receives no response and does not repeat a conditional write."""
    name = uuid4().hex
    location = on_s3(object_storage, object_storage.endpoint, name)
    files = written(location, 1)
    fault = proxy.lose_answer("PUT", "00000000000000000000.json")
    # In another process: Python cannot serve the proxy while it waits for delta-rs.
    with ProcessPoolExecutor(1, get_context("spawn")) as job:
        assert job.submit(commit_new, on_s3(object_storage, proxy.endpoint, name), files).result() == 0
    assert fault.done == 1
    assert rows(location) == [1]
    assert DeltaTableLog(location).version().number == 0


def test_a_commit_to_an_existing_table_whose_response_was_lost_is_found_in_the_log(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DeltaTableLog(location, "the job")
    log.commit(log.version(progress=PROGRESS), SCHEMA, written(location, 0), [])
    commit = DeltaTable.create_write_transaction
    lost: list[bool] = []

    def commit_without_response(self: DeltaTable, *arguments: Any, **given: Any) -> None:
        if not lost.pop():
            raise OSError("connection reset by peer")  # before the storage has written the commit
        commit(self, *arguments, **given)
        raise OSError("connection reset by peer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_without_response)
    read, files = log.version(progress=PROGRESS), written(location, 1)
    lost.append(False)
    with pytest.raises(OSError, match="reset by peer"):
        log.commit(read, SCHEMA, files, list(read.files))
    lost.append(True)
    assert log.commit(read, SCHEMA, files, list(read.files)) == 1
    assert rows(location) == [1]


def test_restore_reverts_commits_of_this_package_and_refuses_other_changes(location: TableLocation) -> None:
    log = TableVersions(location, "the job")
    log.commit(log.version(progress=PROGRESS), SCHEMA, written(location, 1), [])
    log.commit(log.version(progress=PROGRESS), SCHEMA, written(location, 2), [])
    log.restore(0)
    assert rows(location) == [1]
    DeltaTable(location.uri, storage_options=dict(location.options)).delete()
    with pytest.raises(
        ConfigurationError, match=r"Another program changed .*version 3 is 'DELETE'.*Nothing was written"
    ):
        log.restore(0)


def test_forget_deletes_replaced_files_and_no_pending_files(location: TableLocation) -> None:
    log = TableVersions(location)
    first, second, third = (written(location, n) for n in range(3))
    pending = written(location, 9)
    log.commit(log.version(), SCHEMA, first, [])
    log.commit(log.version(), SCHEMA, second, [file.path for file in first])
    log.commit(log.version(), SCHEMA, third, [file.path for file in second])
    log.forget(0, [1])
    found = {
        file.path: location.filesystem().get_file_info(file.path).is_file
        for file in (*first, *second, *third, *pending)
    }
    assert list(found.values()) == [False, True, True, True]
    log.commit(log.version(), SCHEMA, pending, [])
    assert rows(location) == [2, 9]


def test_forget_keeps_files_that_a_kept_version_shares_with_a_forgotten_one(location: TableLocation) -> None:
    log = TableVersions(location)
    gone, shared, newest = (written(location, n) for n in range(3))
    log.commit(log.version(), SCHEMA, [*gone, *shared], [])
    log.commit(log.version(), SCHEMA, [], [file.path for file in gone])
    log.commit(log.version(), SCHEMA, newest, [file.path for file in shared])
    log.forget(0, [1])
    files = location.filesystem()
    assert [files.get_file_info(file.path).is_file for file in (*gone, *shared, *newest)] == [False, True, True]


def test_forget_opens_the_table_once_for_any_number_of_kept_versions(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, files = TableVersions(location), [written(location, n) for n in range(12)]
    log.commit(log.version(), SCHEMA, files[0], [])
    for before, after in pairwise(files):
        log.commit(log.version(), SCHEMA, after, [file.path for file in before])
    opened: list[int | None] = []
    open_version = TableVersions._open

    def counting(self: TableVersions, number: int | None = None) -> Any:
        opened.append(number)
        return open_version(self, number)

    monkeypatch.setattr(TableVersions, "_open", counting)
    log.forget(0, list(range(1, 12)))
    assert present(location, *files) == [n >= 1 for n in range(12)]
    assert opened == [None]
    log.forget(1, list(range(1, 12)))
    assert opened == [None]


def test_forget_keeps_files_that_a_restore_added_again(location: TableLocation) -> None:
    log = TableVersions(location)
    gone, restored, killed, newest = (written(location, n) for n in range(4))
    log.commit(log.version(), SCHEMA, [*gone, *restored], [])
    log.commit(log.version(), SCHEMA, [], [file.path for file in gone])
    log.commit(log.version(), SCHEMA, killed, [file.path for file in restored])
    log.restore(1)
    log.commit(log.version(), SCHEMA, newest, [])
    log.forget(0, [4])
    assert present(location, gone, restored, killed, newest) == [False, True, False, True]
    assert rows(location) == [1, 3]


def test_forget_keeps_files_restored_between_kept_and_newest_versions(
    location: TableLocation,
) -> None:
    log = TableVersions(location)
    first, second, third = (written(location, n) for n in range(3))
    log.commit(log.version(), SCHEMA, first, [])
    log.commit(log.version(), SCHEMA, second, [file.path for file in first])
    log.restore(0)
    log.commit(log.version(), SCHEMA, third, [file.path for file in first])
    log.forget(0, [1, 2])
    assert present(location, first, second, third) == [True, True, True]


def test_forget_deletes_files_of_killed_runs_with_the_version_before_them(
    location: TableLocation,
) -> None:
    log = TableVersions(location)
    first, killed, third, fourth = (written(location, n) for n in range(4))
    log.commit(log.version(), SCHEMA, first, [])
    log.commit(log.version(), SCHEMA, killed, [file.path for file in first])
    log.restore(0)
    log.commit(log.version(), SCHEMA, third, [])
    log.commit(log.version(), SCHEMA, fourth, [file.path for file in first])
    log.forget(0, [3, 4])
    assert present(location, first, killed, third, fourth) == [True, False, True, True]
    log.forget(3, [4])
    assert present(location, first, killed, third, fourth) == [False, False, True, True]


@pytest.mark.parametrize("cut", [[0, 1], [0, 1, 2], [0, 1, 2, 3], [1], [2], [3]])
def test_forget_deletes_no_needed_file_of_a_truncated_log(location: TableLocation, cut: list[int]) -> None:
    log, files = TableVersions(location), [written(location, n) for n in range(5)]
    log.commit(log.version(), SCHEMA, files[0], [])
    for before, after in pairwise(files):
        log.commit(log.version(), SCHEMA, after, [file.path for file in before])
    log.table().create_checkpoint()
    for number in cut:
        location.filesystem().delete_file(f"_delta_log/{number:020d}.json")
    log.forget(0, [2, 3, 4])
    found = present(location, *files)
    assert found[2:] == [True, True, True]
    assert found[0] == (1 in cut or 3 in cut)
    assert found[1] == (2 in cut or 3 in cut)


def test_forget_can_be_repeated_after_a_kill(location: TableLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    log, files = TableVersions(location), [written(location, n) for n in range(3)]
    log.commit(log.version(), SCHEMA, [*files[0], *files[1]], [])
    log.commit(log.version(), SCHEMA, files[2], [file.path for file in (*files[0], *files[1])])
    location.filesystem().delete_file(files[0][0].path)  # as if the job was killed after the first deletion
    log.forget(0, [1])
    assert present(location, *files) == [False, False, True]


def present(location: TableLocation, *files: Sequence[TableFile]) -> list[bool]:
    """Return for each list of files whether all of them exist."""
    filesystem = location.filesystem()
    return [all(filesystem.get_file_info(file.path).is_file for file in each) for each in files]


@pytest.mark.parametrize("name", ["more", "More"])
def test_a_column_added_concurrently_with_another_type_is_a_conflict(location: TableLocation, name: str) -> None:
    """The next try assigns the field to a column again, based on the columns of the newer version."""
    one, two = (DeltaTableLog(location, f"job {number}") for number in (1, 2))
    one.commit(one.version(), SCHEMA, written(location, 0), [])
    read = two.version(progress=["sfstream:00D|2"])
    as_text = SCHEMA.append(pa.field(name, pa.string()))
    one.commit(one.version(progress=["sfstream:00D|1"]), as_text, written(location, 1), [])
    as_struct = SCHEMA.append(pa.field("more", pa.struct([("x", pa.int64())])))
    with pytest.raises(PositionConflictError, match="version 2, job 1"):
        two.commit(read, as_struct, written(location, 2, schema=as_struct), [])
    assert rows(location) == [0, 1]


def test_the_files_of_a_version_have_the_statistics_of_the_ids_only(location: TableLocation) -> None:
    log, schema = DeltaTableLog(location), pa.schema([("Id", pa.string()), *SCHEMA])
    log.commit(log.version(), schema, written(location, 1, schema=schema), [])
    (file,) = log.version().files.values()
    bounds = ("min.Id", "max.Id", "min.window_id", "max.window_id")
    assert file == {name: file[name] for name in ("path", "size_bytes", "num_records", *bounds)}


def test_a_conflict_with_a_concurrent_compaction_names_the_compaction(location: TableLocation) -> None:
    log = DeltaTableLog(location)
    log.commit(log.version(), SCHEMA, [*written(location, 1), *written(location, 2)], [])
    read = log.version(progress=PROGRESS)
    DeltaTable(location.uri, storage_options=dict(location.options)).optimize.compact()
    with pytest.raises(PositionConflictError, match="version 1, OPTIMIZE"):
        log.commit(read, SCHEMA, written(location, 3), list(read.files)[:1])
    assert rows(location) == [1, 2]


def remove_log(log: Path) -> None:
    shutil.rmtree(log)


def remove_newest(log: Path) -> None:
    (log / f"{1:020}.json").unlink()


def cut_commit(log: Path) -> None:
    (log / f"{2:020}.json").write_text('{"commitInfo')


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (remove_log, "the table no longer exists"),
        (remove_newest, "has no version after 1"),
        (cut_commit, "Truncated record"),
    ],
)
def test_a_damaged_log_is_not_reported_as_another_job(
    tmp_path: Path, damage: Callable[[Path], None], cause: str
) -> None:
    location = TableLocation(str(tmp_path / "table"))
    log, files = DeltaTableLog(location, "the job"), tmp_path / "table/_delta_log"
    for number in range(2):
        log.commit(log.version(progress=PROGRESS), SCHEMA, written(location, number), [])
    read = log.version(progress=PROGRESS)
    damage(files)
    left = sorted(files.glob("*.json"))
    with pytest.raises(LandingError, match=f"Delta log of {location.uri} cannot be used.*{cause}.*run the job again"):
        log.commit(read, SCHEMA, written(location, 2), [])
    assert sorted(files.glob("*.json")) == left


@pytest.mark.parametrize("name", ["a b", "a+b", "a:b=c&d;e,f", "[a]{b}", "'a\"`", "a~^|*", "ä"])
def test_the_name_of_a_local_folder_may_have_special_characters(tmp_path: Path, name: str) -> None:
    location = TableLocation(str(tmp_path / name / "table"))
    JobConfig(output_url=location.uri)
    log = DeltaTableLog(location)
    for number in range(2):
        log.commit(log.version(progress=PROGRESS), SCHEMA, written(location, number), [])
    assert rows(location) == [0, 1]
