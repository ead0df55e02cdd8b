"""Network and storage faults of a landing on S3: no partial file is published, and a retry lands every event."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import LandingError, ReplayStoreError
from airflow_provider_sfstream.landing import parquet
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter, WrittenWindow
from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.landing.storage import replace_file, storage_errors, write_once
from airflow_provider_sfstream.streams.source import EventBatch
from tests.integration.landing.conftest import connect
from tests.support.localorg import wait_until
from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.object_storage_proxy import ObjectStorageProxy
from tests.support.scripted_source import SCHEMA
from tests.support.windows import STREAM, batch, manifest

pytestmark = pytest.mark.extended

Through = Callable[[ObjectStorageProxy], Landing]
WINDOW_ID = manifest(Landing.from_url("memory://any")).window.window_id


def land(landing: Landing, attempt: str = "1-aa", batches: list[EventBatch] | None = None) -> WrittenWindow:
    """Land a window of 200 small events, or of ``batches``."""
    writer = ParquetWindowWriter(
        landing, STREAM, WINDOW_ID, attempt=attempt, schema=lambda _: SCHEMA, row_group_rows=50
    )
    with writer:
        for one in batches or [batch(first, 50) for first in range(0, 200, 50)]:
            writer.append(one)
        return writer.finish()


def incompressible(megabytes: int) -> list[EventBatch]:
    """Return batches whose window is uploaded in several parts."""
    batches = [batch(first, 50) for first in range(0, megabytes * 50, 50)]
    return [replace(one, payloads=[os.urandom(2**20 // 50) for _ in one.payloads]) for one in batches]


def keys(storage: ObjectStorage, landing: Landing) -> list[str]:
    """Return the names of the files below the landing."""
    return [key.rpartition("/")[2] for key in storage.keys(landing.base.partition("/")[2]) if not key.endswith("/")]


def uploads(storage: ObjectStorage, landing: Landing) -> list[str]:
    prefix = landing.base.partition("/")[2]
    return [key for key in storage.unfinished_uploads() if key.startswith(prefix)]


class TestWriteOnce:
    def test_a_second_writer_is_refused_and_changes_nothing(self, landing: Landing) -> None:
        path = f"{landing.base}/once"
        assert write_once(landing.filesystem, path, b"first")
        assert not write_once(landing.filesystem, path, b"second")
        assert landing.filesystem.cat_file(path) == b"first"

    def test_writer_recognises_its_own_file_after_a_lost_response(
        self, proxy: ObjectStorageProxy, landing_through: Through
    ) -> None:
        """The S3 client retries the write and receives the error that the file exists; it is its own file."""
        landing = landing_through(proxy)
        proxy.lose_answer("PUT", "/once")
        assert write_once(landing.filesystem, f"{landing.base}/once", b"mine")
        assert [request.condition for request in proxy.requests if request.method == "PUT"] == [True, True]
        assert not write_once(landing.filesystem, f"{landing.base}/once", b"another's")

    def test_conflict_of_conditional_writes_is_retried(
        self, proxy: ObjectStorageProxy, landing_through: Through
    ) -> None:
        """S3 responds with 409 until it has decided which of two writes is the first."""
        landing = landing_through(proxy)
        conflict = proxy.answer("PUT", "/once", 409, "ConditionalRequestConflict", times=2)
        assert write_once(landing.filesystem, f"{landing.base}/once", b"mine")
        assert conflict.done == 2
        lasting = proxy.answer("PUT", "/never", 409, "ConditionalRequestConflict", times=None)
        with pytest.raises(OSError, match="ConditionalRequestConflict"):
            write_once(landing.filesystem, f"{landing.base}/never", b"mine")
        assert lasting.done == 5

    def test_exactly_one_of_many_concurrent_writers_succeeds(
        self, object_storage: ObjectStorage, proxy: ObjectStorageProxy, landing_through: Through
    ) -> None:
        """Responses are lost in some rounds, so that some writers must recognise their own file."""
        landings = [landing_through(proxy) for _ in range(2)]
        for number in range(5):
            if number % 2:
                proxy.lose_answer("PUT", f"/race-{number}", times=3)
            barrier, won = threading.Barrier(8), []

            def race(writer: int, number: int = number, barrier: threading.Barrier = barrier) -> None:
                landing = landings[writer % 2]
                barrier.wait(60)
                if write_once(landing.filesystem, f"{landing.base}/race-{number}", b"%d" % writer):
                    won.append(writer)  # noqa: B023 (joined before the next round)

            threads = [threading.Thread(target=race, args=(writer,)) for writer in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            (winner,) = won
            assert landings[0].filesystem.cat_file(f"{landings[0].base}/race-{number}") == b"%d" % winner
            proxy.heal()

    def test_storage_without_conditional_writes_logs_a_warning(
        self, landing: Landing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        landing.check_writable()
        assert "conditional writes" not in caplog.text
        pipe_file = landing.filesystem.pipe_file
        monkeypatch.setattr(landing.filesystem, "pipe_file", lambda path, data, mode="": pipe_file(path, data))
        landing.check_writable()
        assert "does not support conditional writes (If-None-Match)" in caplog.text


def test_replaced_file_has_the_old_or_the_new_content(proxy: ObjectStorageProxy, landing_through: Through) -> None:
    landing = landing_through(proxy)
    path = f"{landing.base}/position"
    replace_file(landing.filesystem, path, b"old")
    cut = proxy.cut("PUT", "/position", body_bytes=2, times=None)
    with pytest.raises(LandingError, match="position failed"), storage_errors("Writing the position failed"):
        replace_file(landing.filesystem, path, b"new")
    assert cut.done > 1
    assert landing.filesystem.cat_file(path) == b"old"
    proxy.heal()
    replace_file(landing.filesystem, path, b"new")
    assert landing.filesystem.cat_file(path) == b"new"


class TestUploads:
    @pytest.mark.parametrize("fault", ["cut", "answer lost", "slow down"])
    @pytest.mark.parametrize("target", ["/part-00000", "/schemas/"])
    def test_upload_is_complete_after_a_passing_fault(
        self,
        object_storage: ObjectStorage,
        proxy: ObjectStorageProxy,
        landing_through: Through,
        target: str,
        fault: str,
    ) -> None:
        landing = landing_through(proxy)
        if fault == "cut":
            happened = proxy.cut("PUT", target, body_bytes=100)
        elif fault == "answer lost":
            happened = proxy.lose_answer("PUT", target)
        else:
            happened = proxy.answer("PUT", target, 503, "SlowDown")
        landed = land(landing)
        assert happened.done == 1
        published = LandingCatalog(landing).write_manifest(manifest(landing, landed))
        LandingCatalog(landing).verify(published, sha256=True)
        assert sorted(keys(object_storage, landing)) == sorted(
            ["manifest.json", "part-00000-1-aa.parquet", next(iter(landed.schemas.values())).rpartition("/")[2]]
        )

    @pytest.mark.parametrize("size", [0, 100])
    def test_small_upload_that_always_fails_leaves_no_file_and_a_retry_succeeds(
        self, object_storage: ObjectStorage, proxy: ObjectStorageProxy, landing_through: Through, size: int
    ) -> None:
        landing = landing_through(proxy)
        proxy.cut("PUT", "/part-00000", body_bytes=size, times=None)
        with pytest.raises(LandingError, match=r"could not be written.*not moved") as caught:
            land(landing)
        assert caught.value.retriable
        proxy.heal()
        assert keys(object_storage, landing) == []
        assert land(landing, "2-bb").event_count == 200

    @pytest.mark.parametrize("target", ["partNumber=2", "?uploads", "/part-00000-1-aa.parquet?uploadId"])
    def test_large_upload_that_always_fails_is_aborted(
        self, object_storage: ObjectStorage, proxy: ObjectStorageProxy, landing_through: Through, target: str
    ) -> None:
        landing = landing_through(proxy)
        landing.filesystem.default_block_size = 5 * 2**20
        method, size = ("PUT", 1000) if "partNumber" in target else ("POST", 0)
        cut = proxy.cut(method, target, body_bytes=size, times=None)
        with pytest.raises(LandingError, match="could not be written"):
            land(landing, batches=incompressible(12))
        assert cut.done > 1
        assert (keys(object_storage, landing), uploads(object_storage, landing)) == ([], [])

    @pytest.mark.parametrize("heard", [True, False])
    def test_retry_aborts_the_unfinished_uploads_of_a_failed_try(
        self, object_storage: ObjectStorage, proxy: ObjectStorageProxy, landing_through: Through, heard: bool
    ) -> None:
        """The first try cannot abort its upload: the network fails, or the response with the upload ID is lost."""
        landing = landing_through(proxy)
        landing.filesystem.default_block_size = 5 * 2**20
        if heard:
            proxy.cut("PUT", "partNumber=2", times=None)
            proxy.cut("DELETE", "", times=None)
        else:
            proxy.lose_answer("POST", "?uploads", times=None)
        with pytest.raises(LandingError):
            land(landing, batches=incompressible(12))
        proxy.heal()
        assert keys(object_storage, landing) == []
        unfinished = len(uploads(object_storage, landing))
        assert unfinished == 1 if heard else unfinished > 1
        catalog = LandingCatalog(landing)
        published = catalog.write_manifest(manifest(landing, land(landing, "2-bb")))
        assert catalog.remove_unlisted(published) == unfinished
        assert uploads(object_storage, landing) == []
        catalog.verify(published, sha256=True)

    def test_user_without_the_right_to_list_uploads_can_land(
        self, proxy: ObjectStorageProxy, landing_through: Through
    ) -> None:
        landing = landing_through(proxy)
        catalog = LandingCatalog(landing)
        published = catalog.write_manifest(manifest(landing, land(landing)))
        forbidden = proxy.answer("GET", "?uploads", 403, "AccessDenied", times=None)
        assert catalog.remove_unlisted(published) == 0
        assert forbidden.done == 1

    def test_large_upload_with_a_lost_completion_response_is_whole_or_removed(
        self, object_storage: ObjectStorage, proxy: ObjectStorageProxy, landing_through: Through
    ) -> None:
        """The server has the whole file. The try that lost the response removes it or publishes all of it."""
        landing = landing_through(proxy)
        landing.filesystem.default_block_size = 5 * 2**20
        lost = proxy.lose_answer("POST", "/part-00000-1-aa.parquet?uploadId")
        try:
            landed = land(landing, batches=incompressible(12))
        except LandingError:
            assert keys(object_storage, landing) == []
        else:
            catalog = LandingCatalog(landing)
            catalog.verify(catalog.write_manifest(manifest(landing, landed)), sha256=True)
        assert lost.done == 1
        assert uploads(object_storage, landing) == []

    def test_interrupted_window_leaves_no_file(self, object_storage: ObjectStorage, landing: Landing) -> None:
        """Closing its file would publish the part that was written so far."""
        landing.filesystem.default_block_size = 5 * 2**20
        writer = ParquetWindowWriter(
            landing, STREAM, WINDOW_ID, attempt="1-aa", schema=lambda _: SCHEMA, row_group_rows=50
        )
        with pytest.raises(KeyboardInterrupt), writer:  # noqa: PT012 (the exception is not under test)
            for one in incompressible(12):
                writer.append(one)
            raise KeyboardInterrupt
        assert (keys(object_storage, landing), uploads(object_storage, landing)) == ([], [])


def test_interrupted_window_does_not_wait_for_a_silent_storage(
    proxy: ObjectStorageProxy, landing_through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow interrupts a task only once. A task that then waits for the storage would never end."""
    monkeypatch.setattr(parquet, "_LAST_WRITE_SECONDS", 0.2)
    landing = landing_through(proxy)
    silent = proxy.silence("PUT", "/part-")
    writer = ParquetWindowWriter(
        landing, STREAM, WINDOW_ID, attempt="1-aa", schema=lambda _: SCHEMA, row_group_rows=50, part_bytes=1
    )
    with pytest.raises(KeyboardInterrupt), writer:  # noqa: PT012 (the exception is not under test)
        for first in range(0, 150, 50):
            writer.append(batch(first, 50))
        wait_until(lambda: silent.done, what="a part being sent")
        raise KeyboardInterrupt
    proxy.heal()


READ_FAULTS = {
    "cut": lambda proxy, method: proxy.cut(method, ".json", times=None),
    "500": lambda proxy, method: proxy.answer(method, ".json", 500, "InternalError", times=None),
    "503": lambda proxy, method: proxy.answer(method, ".json", 503, "ServiceUnavailable", times=None),
    "403": lambda proxy, method: proxy.answer(method, ".json", 403, "AccessDenied", times=None),
}


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("fault", READ_FAULTS)
def test_unreadable_file_is_never_treated_as_missing(
    proxy: ObjectStorageProxy, landing_through: Through, method: str, fault: str
) -> None:
    """A window treated as missing would be drained again, and a stream without its position would restart."""
    landing = landing_through(proxy)
    catalog, positions = LandingCatalog(landing), PositionFiles(landing)
    published = catalog.write_manifest(manifest(landing))
    positions.set("stream", "position", "a position")
    READ_FAULTS[fault](proxy, method)
    with pytest.raises(LandingError, match=r"manifest\.json could not be read"):
        catalog.read_manifest(STREAM, published.window.window_id)
    with pytest.raises(ReplayStoreError, match=r"stream\.json could not be read"):
        positions.get("stream")
    proxy.heal()
    assert catalog.read_manifest(STREAM, published.window.window_id) == published
    assert positions.get("stream") == "position"


class TestListings:
    def test_files_written_by_another_client_are_seen(
        self, object_storage: ObjectStorage, landing: Landing, url: str
    ) -> None:
        """By default, fsspec caches listings and would return outdated ones."""
        mine, another = LandingCatalog(landing), object_storage.client()
        mine.write_manifest(manifest(landing, land(landing)))
        folder = landing.window_folder(STREAM, WINDOW_ID)
        assert len(landing.filesystem.ls(folder)) == 2
        another.put_object(Bucket=BUCKET, Key=f"{folder.partition('/')[2]}/part-late.parquet", Body=b"12345")
        assert landing.filesystem.size(f"{folder}/part-late.parquet") == 5
        assert len(landing.filesystem.ls(folder)) == 3
        another.put_object(Bucket=BUCKET, Key=f"{folder.partition('/')[2]}/part-late.parquet", Body=b"123")
        assert landing.filesystem.size(f"{folder}/part-late.parquet") == 3

    def test_outdated_listing_hides_no_window_of_the_chain(
        self, object_storage: ObjectStorage, proxy: ObjectStorageProxy, landing_through: Through
    ) -> None:
        landing = landing_through(proxy)
        catalog = LandingCatalog(landing)
        with proxy.listing_only([]):
            first = catalog.write_manifest(manifest(landing, land(landing)))
            second = catalog.write_manifest(
                manifest(landing, number=1, previous=first.window.window_id),
            )
            assert landing.filesystem.ls(landing.base.partition("/")[0]) == []
            assert list(catalog.chain(STREAM, second.window.window_id)) == [second, first]
            assert catalog.write_manifest(replace(first, stop_reason="another try")) == first
            catalog.verify(first, sha256=True)
            assert catalog.remove_unlisted(first) == 0
        assert list(catalog.chain(STREAM, second.window.window_id)) == [second, first]


def test_missing_bucket_is_named_and_not_created(object_storage: ObjectStorage, landing: Landing) -> None:
    elsewhere = Landing(landing.filesystem, "laek/raw", "s3://laek/raw")
    with pytest.raises(LandingError, match="s3://laek/raw cannot be written"):
        elsewhere.check_writable()
    assert "laek" not in [bucket["Name"] for bucket in object_storage.client().list_buckets()["Buckets"]]


@pytest.mark.parametrize(
    "form", ["s3://{bucket}/{folder}", "s3a://{bucket}/{folder}/", "s3://{connection}@{bucket}/{folder}"]
)
def test_every_form_of_a_landing_url_is_the_same_landing(
    object_storage: ObjectStorage, url: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Manifests contain the URL without the connection."""
    connection, folder = connect(monkeypatch, object_storage.airflow_connection()), url.rpartition("/")[2]
    landing_url = form.format(bucket=BUCKET, folder=folder, connection=connection)
    landing = open_landing(landing_url, None if "@" in landing_url else connection).landing
    assert (landing.url, landing.base) == (url, f"{BUCKET}/{folder}")
    published = LandingCatalog(landing).write_manifest(manifest(landing))
    assert published.window.manifest_url.startswith(f"{url}/")
    assert LandingCatalog(landing).read_manifest_url(published.window.manifest_url) == published
