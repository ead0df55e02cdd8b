"""Java's archive: only a job that succeeded leaves one, and nothing else is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.tasks.small_windows import JavaArchive, small_window_settings


def write(archive: JavaArchive) -> None:
    """Do what Java does when a job ends."""
    name, _, path = archive.option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_text("classes")


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_job_leaves_an_archive_only_if_it_succeeds(tmp_path: Path, succeeded: bool) -> None:
    first = JavaArchive(tmp_path / "kept")
    write(first)
    first.end(succeeded=succeeded)
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == ([".jsa"] if succeeded else [])
    assert JavaArchive(tmp_path / "kept").option.startswith("-XX:SharedArchiveFile=") == succeeded


def test_of_two_first_jobs_one_archive_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = JavaArchive(tmp_path)
    monkeypatch.setattr("os.getpid", lambda: 2)
    other = JavaArchive(tmp_path)
    assert one.option != other.option
    for archive in (one, other):
        write(archive)
        archive.end(succeeded=True)
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsa"]


def test_what_the_user_sets_goes_before() -> None:
    given = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Dmine=1"}
    settings = small_window_settings(given, None)
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert "jsa" not in settings["spark.driver.extraJavaOptions"]
