"""Small files through Hadoop: in a local folder, and in a bucket that a mount table links to a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from airflow_provider_sfstream.tables.delta import hadoop_files
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation


@pytest.fixture(params=["file", "s3a"])
def base(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "file":
        yield f"{tmp_path.as_uri()}/lake"
        return
    bucket, configuration = f"bucket-{uuid4().hex}", spark._jsc.hadoopConfiguration()
    settings = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"fs.viewfs.mounttable.{bucket}.link./lake": tmp_path.as_uri(),
    }
    for name, value in settings.items():
        configuration.set(name, value)
    yield f"s3a://{bucket}/lake"
    for name in settings:
        configuration.unset(name)


def test_a_file_is_created_once_and_replaced_completely(spark: Any, base: str, tmp_path: Path) -> None:
    files, url = HadoopFiles(spark), f"{base}/below/here.json"
    with pytest.raises(FileNotFoundError):
        files.read_text(url)
    files.create_text(url, "first")
    with pytest.raises(FileExistsError):
        files.create_text(url, "second")
    assert files.read_text(url) == "first"
    files.replace_text(url, "third, ä")
    files.replace_text(f"{base}/below/there.json", "new")
    assert files.read_text(url) == "third, ä"
    assert files.file_names(f"{base}/below") == ["here.json", "there.json"]
    assert sorted(path.name for path in tmp_path.rglob("*.json") if not path.name.startswith(".")) == [
        "here.json",
        "there.json",
    ]


def test_a_table_location_has_the_settings_and_secrets_of_hadoop(spark: Any, base: str, tmp_path: Path) -> None:
    """The table location has secrets of a credential provider and settings of the bucket."""
    configuration, bucket = spark._jsc.hadoopConfiguration(), urlsplit(base).netloc
    settings = {
        "hadoop.security.credential.provider.path": f"localjceks://file{tmp_path}/secrets.jceks",
        "fs.s3a.access.key": "mine",
        f"fs.s3a.bucket.{bucket}.endpoint": "http://storage:8333",
    }
    for name, value in settings.items():
        configuration.set(name, value)
    try:
        provider = spark._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(configuration)[0]
        secret = spark.sparkContext._gateway.new_array(spark._jvm.char, 7)
        for place, character in enumerate("hunter2"):
            secret[place] = character
        provider.createCredentialEntry("fs.s3a.secret.key", secret)
        provider.flush()
        location = HadoopFiles(spark).table_location(f"{base}/")
    finally:
        for name in settings:
            configuration.unset(name)
    if base.startswith("file:"):
        assert location == TableLocation(f"{tmp_path}/lake")
        return
    assert location.uri == f"s3://{bucket}/lake"
    given = {
        name: location.options[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")
    }
    assert list(given.values()) == ["mine", "hunter2", "http://storage:8333"]


@pytest.mark.parametrize("known", [True, False])
def test_an_object_is_created_by_a_conditional_write_without_a_rename(spark: Any, tmp_path: Path, known: bool) -> None:
    path = spark._jvm.org.apache.hadoop.fs.Path(f"{tmp_path.as_uri()}/object.json")
    filesystem = Bucket(path.getFileSystem(spark._jsc.hadoopConfiguration()), knows_conditions=known)
    HadoopFiles(spark)._put(path, filesystem, "first", overwrite=False)
    assert filesystem.demanded == (["fs.option.create.conditional.overwrite"] if known else [])
    with pytest.raises(Exception, match="FileAlreadyExistsException"):
        HadoopFiles(spark)._put(path, filesystem, "second", overwrite=False)
    HadoopFiles(spark)._put(path, filesystem, "third", overwrite=True)
    assert (tmp_path / "object.json").read_text() == "third"


def test_a_file_created_by_concurrent_jobs_has_the_content_of_one_of_them(spark: Any, base: str) -> None:
    def create(number: int) -> bool:
        try:
            HadoopFiles(spark).create_text(f"{base}/snapshots/1.json", str(number))
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    assert created.count(True) >= 1
    winners = {str(number) for number, wrote in enumerate(created) if wrote}
    assert HadoopFiles(spark).read_text(f"{base}/snapshots/1.json") in winners


@pytest.mark.parametrize("bucket", [True, False])
def test_a_file_that_another_job_creates_first_is_not_overwritten(
    spark: Any, base: str, monkeypatch: pytest.MonkeyPatch, bucket: bool
) -> None:
    """Another job creates the file after the check for existence and before the write."""
    if bucket and base.startswith("file:"):
        monkeypatch.setattr(hadoop_files, "_BUCKET_SCHEMES", ("file",))  # write local files as objects are written
    files = HadoopFiles(spark)
    write = files._write

    def after_another(url: str, text: str, *, overwrite: bool) -> None:
        write(url, "another's", overwrite=False)
        write(url, text, overwrite=overwrite)

    monkeypatch.setattr(files, "_write", after_another)
    with pytest.raises(FileExistsError):
        files.create_text(f"{base}/one.json", "mine")
    assert files.read_text(f"{base}/one.json") == "another's"
    # The existing file has the same bytes, so the client treats it as its own repeated write.
    files.create_text(f"{base}/two.json", "another's")


def test_a_local_file_system_refuses_a_conditional_create(spark: Any, tmp_path: Path) -> None:
    """A local file system refuses the option, so the code checks the capability first."""
    path, filesystem = HadoopFiles(spark)._locate(f"{tmp_path.as_uri()}/file")
    assert not filesystem.hasPathCapability(path, hadoop_files._CONDITIONAL)
    builder = filesystem.createFile(path).overwrite(False).recursive().must(hadoop_files._CONDITIONAL, True)
    with pytest.raises(Exception, match=f"Unknown mandatory key.*{hadoop_files._CONDITIONAL}"):
        builder.build()


def test_a_failed_write_is_aborted_before_the_stream_is_closed() -> None:
    """An object store publishes all written bytes on closing, so a failed write first aborts the stream."""
    calls: list[str] = []

    class FullDisk:
        def write(self, _: bytearray) -> None:
            raise OSError("No space left on device")

        def abort(self) -> None:
            calls.append("abort")

        def close(self) -> None:
            calls.append("close")

    with pytest.raises(OSError, match="No space left"):
        HadoopFiles._fill(FullDisk(), "text")
    assert calls == ["abort", "close"]


class Bucket:
    """Local file system with a configurable capability for conditional creates; it records the mandatory options."""

    def __init__(self, filesystem: Any, *, knows_conditions: bool) -> None:
        self._filesystem, self._knows_conditions = filesystem, knows_conditions
        self.demanded: list[str] = []

    def hasPathCapability(self, path: Any, capability: str) -> bool:  # noqa: N802 (Hadoop's name)
        return self._knows_conditions

    def createFile(self, path: Any) -> Any:  # noqa: N802 (Hadoop's name)
        return _Builder(self._filesystem.createFile(path), self.demanded)


class _Builder:
    def __init__(self, builder: Any, demanded: list[str]) -> None:
        self._builder, self._demanded = builder, demanded

    def overwrite(self, value: bool) -> _Builder:
        return _Builder(self._builder.overwrite(value), self._demanded)

    def recursive(self) -> _Builder:
        return _Builder(self._builder.recursive(), self._demanded)

    def must(self, option: str, value: bool) -> _Builder:
        self._demanded.append(option)
        return self

    def build(self) -> Any:
        return self._builder.build()
