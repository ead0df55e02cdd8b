from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.tables.delta.landed_windows import event_dates, load_windows
from airflow_provider_sfstream.tables.event_log.table_plans import read_schemas
from tests.support.landing_files import LandedEvent, land_window

SCHEMA = {"type": "record", "name": "Order__e", "fields": [{"name": "a", "type": "int"}]}
TIMES = (datetime(2026, 1, 10, 23, tzinfo=UTC), datetime(2026, 1, 12, 1, tzinfo=UTC))


class LocalFiles:
    def url(self, url: str) -> str:
        return url

    def read_text(self, url: str) -> str:
        return Path(url.removeprefix("file://")).read_text()


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    return land_window(tmp_path, "w1", [LandedEvent(1, "one", {"a": 1})], {"one": SCHEMA}, event_times=TIMES)


def document(manifest: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(LocalFiles().read_text(manifest))
    return loaded


def test_live_windows_are_first_then_backfill_windows_with_the_latest_counts_from(tmp_path: Path) -> None:
    windows = {
        "a1": ("backfill", None),
        "a2": ("live", 9),
        "a3": ("backfill", 7),
        "a4": ("live", 8),
        "a5": ("backfill", 8),
        "a6": ("backfill", 8),
    }
    urls = [land_window(tmp_path, name, [], {}) for name in windows]
    for url, (kind, hour) in zip(urls, windows.values(), strict=True):
        counts_from = hour and f"2026-11-20T{hour:02}:00:00+00:00"
        changed = {**document(url), "kind": kind, "counts_from": counts_from}
        Path(url.removeprefix("file://")).write_text(json.dumps(changed))
    read = [each.window.window_id for each in load_windows(LocalFiles(), urls)]
    assert read == ["a2", "a4", "a5", "a6", "a3", "a1"]


def test_files_and_schemas_are_found_from_the_manifest(manifest: str) -> None:
    (landed,) = load_windows(LocalFiles(), [manifest, manifest])
    folder = manifest.removesuffix("/manifest.json")
    assert [*landed.file_sums()] == [f"{folder}/part-00000.parquet"]
    schema_url = landed.url_of(landed.schemas["one"])
    assert schema_url == folder.partition("/windows/")[0] + "/schemas/one.avsc"
    assert json.loads(LocalFiles().read_text(schema_url)) == SCHEMA
    assert (landed.window.window_id, landed.stream.topic, landed.window.event_count) == ("w1", "/event/Order__e", 1)
    assert event_dates(landed) == (date(2026, 1, 9), date(2026, 1, 13))


def test_window_with_a_missing_schema_has_the_url_of_the_schema_and_no_dates(manifest: str) -> None:
    path = Path(manifest.removeprefix("file://"))
    changed = document(manifest)
    file = changed["schemas"].pop("one")
    changed["missing_schemas"] = {"one": {"file": file, "reason": "hidden"}, "": {"file": None, "reason": "no id"}}
    path.write_text(json.dumps(changed))
    (landed,) = load_windows(LocalFiles(), [manifest])
    url = manifest.partition("/windows/")[0] + "/schemas/one.avsc"
    assert landed.url_of(str(landed.missing_schemas["one"].file)) == url
    assert event_dates(landed) is None
    found = read_schemas(LocalFiles(), [landed])
    assert (set(found.usable()), set(found.refused)) == ({"one"}, {""}), "the schema was fetched later"
    Path(url.removeprefix("file://")).unlink()
    found = read_schemas(LocalFiles(), [landed])
    assert found.usable() == {}
    assert "'one' was not available when the window landed" in found.refused["one"]
    assert "hidden" in found.refused["one"]


def test_a_schema_file_that_is_not_text_is_refused(manifest: str) -> None:
    (landed,) = load_windows(LocalFiles(), [manifest])
    Path(landed.url_of(landed.schemas["one"]).removeprefix("file://")).write_bytes(b"\xff\xfe")
    found = read_schemas(LocalFiles(), [landed])
    assert (found.usable(), set(found.refused)) == ({}, {"one"})
    assert "schema one cannot be used: 'utf-8' codec" in found.refused["one"]


def test_without_event_times_any_date_is_possible(tmp_path: Path) -> None:
    (landed,) = load_windows(LocalFiles(), [land_window(tmp_path, "w0", [], {})])
    assert (landed.file_sums(), event_dates(landed)) == ({}, None)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 2},
        {"payload_encoding": "protobuf"},
        {"event_count": 2},
        {"window_id": "../w"},
        {"files": [{"name": "../part.parquet", "rows": 1, "bytes": 1, "sha256": ""}]},
        {"files": [{"name": "part-*.parquet", "rows": 1, "bytes": 1, "sha256": ""}]},
        {"schemas": {"one": "/etc/passwd"}},
        {"schemas": {"one": "s3://elsewhere/one.avsc"}},
        {"schemas": {"one": "../../../../../../schemas/one.avsc"}},
        {"schemas": {"one": "../../../../../schemas/../../../one.avsc"}},
        {"schemas": {"one": ["../../../../../schemas/one.avsc"]}},
        {"missing_schemas": {"one": {"file": "../../../../../../../etc/passwd", "reason": "hidden"}}},
        {"stream": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_broken_or_foreign_manifest_is_an_error_that_names_it(manifest: str, change: dict[str, Any]) -> None:
    Path(manifest.removeprefix("file://")).write_text(json.dumps(document(manifest) | change))
    with pytest.raises(ManifestError, match=r"manifest\.json (is|has|names|counts) .*Nothing was written"):
        load_windows(LocalFiles(), [manifest])


def test_two_manifests_of_one_window_id_are_an_error(manifest: str, tmp_path: Path) -> None:
    other = land_window(tmp_path / "other", "w1", [], {})
    with pytest.raises(ManifestError, match="window ID w1"):
        load_windows(LocalFiles(), [manifest, other])


def test_a_missing_manifest_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="Use the manifest_url that the drain returned"):
        load_windows(LocalFiles(), [(tmp_path / "manifest.json").as_uri()])
