from __future__ import annotations

from datetime import date

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.windows import STREAM

WINDOW = "20260131T120000Z-0123456789abcdef"
FOLDER = "00D000000000001EAA/pubsub/event.Order__e/airflow"


def test_paths_of_manifests_schemas_and_days_are_below_the_base():
    landing = Landing.from_url("memory://lake/raw/")
    base = f"/lake/raw/{FOLDER}"
    assert landing.manifest_path(STREAM, WINDOW) == f"{base}/windows/2026/01/31/{WINDOW}/manifest.json"
    assert (
        landing.manifest_url(STREAM, WINDOW) == f"memory:///lake/raw/{FOLDER}/windows/2026/01/31/{WINDOW}/manifest.json"
    )
    assert landing.path_of(landing.manifest_url(STREAM, WINDOW)) == landing.manifest_path(STREAM, WINDOW)
    assert landing.schema_path(STREAM, "K98aAtiNFBjA-PJlcvaQ2g") == f"{base}/schemas/K98aAtiNFBjA-PJlcvaQ2g.avsc"
    assert landing.day_folder(STREAM, date(2026, 1, 31)) == f"{base}/windows/2026/01/31"


def test_names_from_outside_cannot_leave_their_folder():
    landing = Landing.from_url("memory://lake")
    stream = Stream("..", "pubsub", "/event/../../x", "../other")
    for path in (landing.schema_path(stream, "../../../x"), landing.manifest_path(stream, WINDOW)):
        assert path.startswith("/lake/")
        assert ".." not in path.split("/")
    assert landing.schema_path(STREAM, "a/b") != landing.schema_path(STREAM, "a-b")


@pytest.mark.parametrize("window_id", ["", "..", "20260131/../x", "20261331T000000Z-00", "today", "20260131 x"])
def test_invalid_window_id_is_refused(window_id):
    with pytest.raises(ConfigurationError, match="Invalid window ID"):
        Landing.from_url("memory://lake").window_folder(STREAM, window_id)


def test_a_url_with_a_password_is_refused_without_repeating_it():
    with pytest.raises(ConfigurationError) as caught:
        Landing.from_url("memory://lake").__class__(None, "/lake", "s3://key:hunter2@lake")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "  ", "nosuchscheme://lake"])
def test_an_unusable_url_is_refused(url):
    with pytest.raises(ConfigurationError, match="landing URL"):
        Landing.from_url(url)


@pytest.mark.parametrize("url", ["memory:///other/x", "memory:///lakeside/x", "memory:///lake/../other/manifest.json"])
def test_url_outside_the_landing_is_refused(url):
    with pytest.raises(LandingError, match="not below the landing"):
        Landing.from_url("memory://lake").path_of(url)


def test_a_writable_landing_passes_the_check_and_stays_empty(landing):
    landing.check_writable()
    assert landing.filesystem.ls(landing.base) == []


def test_unwritable_landing_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LandingError, match=r"file/lake cannot be written.*Check that the folder"):
        Landing.from_url(str(tmp_path / "file" / "lake")).check_writable()
