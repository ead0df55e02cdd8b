"""Manifests: each window has one, also with concurrent writers, and changed files are detected."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import date, timedelta, timezone
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import LandingError, ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest, MissingSchema
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.landing.pruned import remove_windows
from tests.support.scripted_source import SCHEMA
from tests.support.windows import DUE, STREAM, batch, manifest, with_stop_reason


@pytest.fixture
def catalog(landing):
    return LandingCatalog(landing)


def landed_manifest(catalog, attempt="1-aa", **arguments) -> Manifest:
    window_id = manifest(catalog.landing, **arguments).window.window_id
    writer = ParquetWindowWriter(catalog.landing, STREAM, window_id, attempt=attempt, schema=lambda schema_id: SCHEMA)
    with writer:
        writer.append(batch(0, 50))
        landed = writer.finish()
    return manifest(catalog.landing, landed, **arguments)


def test_a_manifest_is_read_as_it_was_written(catalog):
    written = landed_manifest(catalog)
    assert catalog.read_manifest(STREAM, written.window.window_id) is None
    assert catalog.write_manifest(written) == written
    assert catalog.read_manifest(STREAM, written.window.window_id) == written
    assert catalog.read_manifest_url(written.window.manifest_url) == written
    folder = catalog.landing.window_folder(STREAM, written.window.window_id)
    assert len(catalog.landing.filesystem.ls(folder)) == 2


def test_covered_span_of_a_window_is_stored(catalog):
    plain = landed_manifest(catalog)
    elsewhere = timezone(timedelta(hours=5, minutes=45))
    window = replace(
        plain.window, covered_from=DUE.astimezone(elsewhere), covered_until=DUE + timedelta(microseconds=1)
    )
    covered = replace(plain, window=window)
    assert catalog.write_manifest(covered) == covered
    assert catalog.read_manifest(STREAM, window.window_id) == covered
    assert json.loads(plain.to_json())["covered_until"] is None


def test_missing_schemas_are_stored(catalog):
    plain = landed_manifest(catalog)
    missing = {"": MissingSchema(None, "no id"), "one": MissingSchema("../../../../../schemas/one.avsc", "hidden")}
    written = replace(plain, missing_schemas=missing)
    assert Manifest.from_json(written.to_json(), written.window.manifest_url) == written


def test_schemas_and_files_are_found_from_the_manifest_url(catalog):
    written = catalog.write_manifest(landed_manifest(catalog))
    for name in (*written.schemas.values(), *(file.name for file in written.files)):
        assert catalog.landing.filesystem.exists(catalog.landing.path_of(written.url_of(name)))


def test_second_writer_adopts_the_first_manifest(catalog):
    first = catalog.write_manifest(landed_manifest(catalog, "1-aa"))
    second = landed_manifest(catalog, "2-bb")
    assert catalog.write_manifest(second) == first
    assert catalog.read_manifest(STREAM, first.window.window_id) == first


def test_concurrent_writers_all_return_one_manifest(catalog):
    candidates = [with_stop_reason(landed_manifest(catalog), f"reason {number}") for number in range(8)]
    results: list[Manifest] = []
    barrier = threading.Barrier(len(candidates))

    def write(candidate):
        barrier.wait()
        results.append(catalog.write_manifest(candidate))

    threads = [threading.Thread(target=write, args=(candidate,)) for candidate in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(candidates)
    if catalog.landing.url.startswith("file"):  # the memory filesystem has no conditional write
        assert len({result.stop_reason for result in results}) == 1


def test_storage_without_hard_links_still_writes_once(catalog, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    first = catalog.write_manifest(landed_manifest(catalog))
    assert catalog.write_manifest(with_stop_reason(first, "later")) == first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": "sfstream-manifest", "version": 99}',
        '{"format": "sfstream-manifest", "version": 1}',
    ],
)
def test_a_broken_or_foreign_manifest_is_refused(catalog, text):
    written = catalog.write_manifest(landed_manifest(catalog))
    path = catalog.landing.manifest_path(STREAM, written.window.window_id)
    catalog.landing.filesystem.pipe_file(path, text.encode())
    for reading in (
        lambda: catalog.read_manifest(STREAM, written.window.window_id),
        lambda: catalog.read_manifest_url(written.window.manifest_url),
        lambda: catalog.write_manifest(written),
    ):
        with pytest.raises(ManifestError, match=r"manifest\.json is (a|not)"):
            reading()


def test_a_manifest_that_names_files_elsewhere_is_refused(catalog):
    written = catalog.write_manifest(landed_manifest(catalog))
    document = json.loads(written.to_json())
    document["files"][0]["name"] = "../../secret.parquet"
    with pytest.raises(ManifestError, match="names files that no drain writes"):
        Manifest.from_json(json.dumps(document), written.window.manifest_url)


def test_manifest_copied_to_another_window_is_refused(catalog):
    one = catalog.write_manifest(landed_manifest(catalog))
    other = manifest(catalog.landing, number=1).window.window_id
    catalog.landing.filesystem.makedirs(catalog.landing.window_folder(STREAM, other))
    catalog.landing.filesystem.pipe_file(catalog.landing.manifest_path(STREAM, other), one.to_json().encode())
    with pytest.raises(ManifestError, match="copied or moved"):
        catalog.read_manifest(STREAM, other)


def test_missing_or_foreign_manifest_url_is_refused(catalog):
    with pytest.raises(ManifestError, match="does not exist"):
        catalog.read_manifest_url(manifest(catalog.landing).window.manifest_url)
    with pytest.raises(LandingError, match="not below the landing"):
        catalog.read_manifest_url("memory://elsewhere/manifest.json")


def test_verify_notices_missing_short_and_changed_files(catalog):
    written = catalog.write_manifest(landed_manifest(catalog))
    catalog.verify(written, sha256=True)
    filesystem = catalog.landing.filesystem
    path = f"{catalog.landing.window_folder(STREAM, written.window.window_id)}/{written.files[0].name}"
    data = filesystem.cat_file(path)
    filesystem.pipe_file(path, data[:-1] + bytes([data[-1] ^ 1]))
    catalog.verify(written)
    with pytest.raises(LandingError, match=rf"has changed .*SHA-256 [0-9a-f]{{64}} now, {written.files[0].sha256} in"):
        catalog.verify(written, sha256=True)
    filesystem.pipe_file(path, data[:-1])
    with pytest.raises(LandingError, match=rf"has changed .*\({len(data) - 1} bytes now, {len(data)} in the manifest"):
        catalog.verify(written, sha256=True)
    filesystem.rm_file(path)
    with pytest.raises(LandingError, match=r"could not be read.*Restore it"):
        catalog.verify(written)


def test_files_of_killed_tries_are_removed_and_nothing_else(catalog):
    landed_manifest(catalog, "1-dead")
    written = catalog.write_manifest(landed_manifest(catalog, "2-bb"))
    assert catalog.remove_unlisted(written) == 1
    assert catalog.remove_unlisted(written) == 0
    catalog.verify(written, sha256=True)
    assert catalog.read_manifest(STREAM, written.window.window_id) == written


def test_windows_between_returns_the_finished_windows_of_the_days(catalog):
    days = [DUE + timedelta(days=offset) for offset in range(-1, 4)]
    written = [catalog.write_manifest(manifest(catalog.landing, number=n, due=due)) for n, due in enumerate(days)]
    unfinished = landed_manifest(catalog, number=9, due=DUE + timedelta(hours=1))
    found = catalog.windows_between(STREAM, date(2026, 1, 31), date(2026, 2, 2))
    assert found == written[1:4]
    assert unfinished not in found
    assert catalog.windows_between(STREAM, date(2025, 1, 1), date(2025, 1, 2)) == []


def test_excluded_windows_are_not_read(catalog):
    wanted, broken = (catalog.write_manifest(manifest(catalog.landing, number=number)) for number in (0, 1))
    path = catalog.landing.manifest_path(STREAM, broken.window.window_id)
    catalog.landing.filesystem.pipe_file(path, b"broken")
    assert catalog.windows_between(STREAM, DUE.date(), DUE.date(), without=[broken.window.window_id]) == [wanted]


def test_the_first_day_is_that_of_the_oldest_window(catalog):
    assert catalog.first_day(STREAM) is None
    for number, due in enumerate([DUE, DUE - timedelta(days=100), DUE - timedelta(days=40)]):
        catalog.write_manifest(manifest(catalog.landing, number=number, due=due))
    assert catalog.first_day(STREAM) == (DUE - timedelta(days=100)).date()
    for folder in ("2019/02", "_temporary"):
        catalog.landing.filesystem.makedirs(f"{catalog.landing.windows_folder(STREAM)}/{folder}")
        catalog.landing.filesystem.pipe_file(f"{catalog.landing.windows_folder(STREAM)}/{folder}/left-behind", b"")
    assert catalog.first_day(STREAM) == date(2019, 2, 1)


def test_the_newest_live_window_is_found_without_reading_older_days(catalog):
    assert catalog.newest_live(STREAM) is None
    dues = [DUE - timedelta(days=400), DUE, DUE + timedelta(days=1), DUE + timedelta(days=2)]
    oldest, newest, backfill, unfinished = (
        manifest(catalog.landing, number=number, due=due) for number, due in enumerate(dues)
    )
    backfill = replace(backfill, window=replace(backfill.window, kind="backfill"))
    catalog.write_manifest(backfill)
    assert catalog.newest_live(STREAM) is None
    catalog.write_manifest(oldest)
    assert catalog.newest_live(STREAM) == oldest
    catalog.write_manifest(newest)
    folder = catalog.landing.window_folder(STREAM, unfinished.window.window_id)
    catalog.landing.filesystem.makedirs(folder)
    catalog.landing.filesystem.pipe_file(f"{folder}/part-00000.parquet", b"of a try that was killed")
    catalog.landing.filesystem.pipe_file(catalog.landing.manifest_path(STREAM, oldest.window.window_id), b"broken")
    assert catalog.newest_live(STREAM) == newest


def chain_of(catalog, count: int) -> list[Manifest]:
    previous, written = None, []
    for number in range(count):
        one = manifest(catalog.landing, number=number, due=DUE + timedelta(hours=12 * number), previous=previous)
        written.append(catalog.write_manifest(one))
        previous = one.window.window_id
    return written


def test_the_chain_is_followed_without_listing(catalog, monkeypatch):
    written = chain_of(catalog, 5)

    def refuse(*arguments, **options):
        raise AssertionError("a folder was listed")

    monkeypatch.setattr(catalog, "_list", refuse)
    head = written[-1].window.window_id
    assert list(catalog.chain(STREAM, head)) == written[::-1]


def test_chain_ends_at_a_missing_window(catalog, caplog):
    written = chain_of(catalog, 5)
    catalog.landing.filesystem.rm_file(catalog.landing.manifest_path(STREAM, written[1].window.window_id))
    assert list(catalog.chain(STREAM, written[-1].window.window_id)) == written[:1:-1]
    assert "is missing; the windows before it cannot be found" in caplog.text


def test_a_circle_of_windows_is_refused(catalog):
    first, second = chain_of(catalog, 2)
    circular = replace(first, window=replace(first.window, previous_window_id=second.window.window_id))
    path = catalog.landing.manifest_path(STREAM, first.window.window_id)
    catalog.landing.filesystem.pipe_file(path, circular.to_json().encode())
    with pytest.raises(ManifestError, match="cycle at window"):
        list(catalog.chain(STREAM, second.window.window_id))


@pytest.mark.parametrize(
    "change",
    [
        {"schemas": {"one": "/etc/passwd"}},
        {"schemas": {"one": "../../../../../../../etc/passwd"}},
        {"schemas": {"one": "s3://elsewhere/schemas/one.avsc"}},
        {"schemas": {"one": 7}},
        {"missing_schemas": {"one": {"file": "../../../../../../x/schemas/one.avsc", "reason": "hidden"}}},
    ],
    ids=str,
)
def test_manifest_with_schemas_outside_the_landing_is_refused(catalog, change):
    written = landed_manifest(catalog)
    document = json.loads(written.to_json()) | change
    with pytest.raises(ManifestError):
        Manifest.from_json(json.dumps(document), written.window.manifest_url)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"format": "sfstream-manifest", "version": ' + "[" * 9000]
)
def test_too_deeply_nested_manifest_is_refused(text):
    with pytest.raises(ManifestError, match="is not a readable manifest"):
        Manifest.from_json(text, "file:///manifest.json")


def test_windows_are_not_removed_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "real")
    catalog = LandingCatalog(Landing.from_url(str(tmp_path / "base")))
    window_ids = [catalog.write_manifest(landed_manifest(catalog)).window.window_id]
    folder = Path(catalog.landing.window_folder(STREAM, window_ids[0]))
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())
    with pytest.raises(LandingError, match=r"is a symbolic link. .* Nothing was removed"):
        remove_windows(catalog.landing, STREAM, window_ids)
    assert sorted(elsewhere.iterdir()) == before
    folder.unlink()
    elsewhere.rename(folder)
    remove_windows(catalog.landing, STREAM, window_ids)
    assert not folder.exists(), "the base of a landing may be a link"
