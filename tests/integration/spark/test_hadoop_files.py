"""Small files through Hadoop: created once, replaced whole, on local files and behind a mount table for a bucket."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.spark import hadoop_files
from airflow_provider_sfstream.spark.hadoop_files import HadoopFiles


@pytest.fixture
def files(spark: Any) -> HadoopFiles:
    return HadoopFiles(spark)


@pytest.fixture(params=["local", "mounted bucket", "as a bucket"])
def url(request: pytest.FixtureRequest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder on local files, one that has a bucket's URL, and local files written the way objects are."""
    configuration, settings, given = spark._jsc.hadoopConfiguration(), {}, f"{tmp_path.as_uri()}/folder"
    if request.param == "mounted bucket":
        bucket = f"bucket-{secrets.token_hex(4)}"
        settings = {
            "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
            "fs.viewfs.overload.scheme.target.s3a.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            f"fs.viewfs.mounttable.{bucket}.link./data": tmp_path.as_uri(),
        }
        given = f"s3a://{bucket}/data/folder"
    elif request.param == "as a bucket":
        monkeypatch.setattr(hadoop_files, "_BUCKET_SCHEMES", ("file",))
    for name, value in settings.items():
        configuration.set(name, value)
    yield given
    for name in settings:
        configuration.unset(name)


def test_a_file_is_created_once_and_replaced_whole(files: HadoopFiles, url: str, tmp_path: Path) -> None:
    files.create_text(f"{url}/one.json", "första\n")
    with pytest.raises(FileExistsError):
        files.create_text(f"{url}/one.json", "second")
    assert files.read_text(f"{url}/one.json") == "första\n"
    for text in ("longer than before\n", ""):
        files.replace_text(f"{url}/one.json", text)
        assert files.read_text(f"{url}/one.json") == text
        assert (tmp_path / "folder" / "one.json").read_text() == text
    assert files.file_names(url) == ["one.json"], "no temporary file is left"


def test_a_file_that_appears_before_it_is_created_is_kept(
    files: HadoopFiles, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other job wrote between the question whether it is there and the writing."""
    write = files._write

    def after_another(url: str, text: str, *, overwrite: bool) -> None:
        write(url, "another's", overwrite=False)
        write(url, text, overwrite=overwrite)

    monkeypatch.setattr(files, "_write", after_another)
    with pytest.raises(FileExistsError):
        files.create_text(f"{url}/one.json", "mine")
    assert files.read_text(f"{url}/one.json") == "another's"
    files.create_text(f"{url}/two.json", "another's")  # refused, but by the same bytes: a repeated write of its own


def test_a_conditional_create_is_not_asked_of_what_does_not_know_it(files: HadoopFiles, tmp_path: Path) -> None:
    """Such a file system would refuse the option; it is asked first whether it has it."""
    path, filesystem = files._locate(f"{tmp_path.as_uri()}/file")
    assert not filesystem.hasPathCapability(path, hadoop_files._CONDITIONAL)
    builder = filesystem.createFile(path).overwrite(False).recursive().must(hadoop_files._CONDITIONAL, True)
    with pytest.raises(Exception, match=f"Unknown mandatory key.*{hadoop_files._CONDITIONAL}"):
        builder.build()


def test_what_was_written_halfway_is_not_published(files: HadoopFiles) -> None:
    """An object store publishes on closing whatever it was given; a stream that can be aborted is."""
    calls: list[str] = []

    class FullDisk:
        def write(self, _: bytearray) -> None:
            raise OSError("No space left on device")

        def abort(self) -> None:
            calls.append("abort")

        def close(self) -> None:
            calls.append("close")

    with pytest.raises(OSError, match="No space left"):
        files._fill(FullDisk(), "text")
    assert calls == ["abort", "close"]
