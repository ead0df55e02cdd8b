"""Small files through Hadoop: on local files, and on a bucket whose files are behind the link of a mount table."""

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


def test_a_file_is_created_once_and_replaced_as_a_whole(spark: Any, base: str, tmp_path: Path) -> None:
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


def test_tasks_reach_a_folder_as_hadoop_does(spark: Any, base: str, tmp_path: Path) -> None:
    """With secrets that only a credential provider has, and what was set for the bucket."""
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
def test_an_object_is_never_renamed_and_its_store_decides(spark: Any, tmp_path: Path, known: bool) -> None:
    path = spark._jvm.org.apache.hadoop.fs.Path(f"{tmp_path.as_uri()}/object.json")
    filesystem = Bucket(path.getFileSystem(spark._jsc.hadoopConfiguration()), knows_conditions=known)
    HadoopFiles(spark)._put(path, filesystem, "first", overwrite=False)
    assert filesystem.demanded == (["fs.option.create.conditional.overwrite"] if known else [])
    with pytest.raises(Exception, match="FileAlreadyExistsException"):
        HadoopFiles(spark)._put(path, filesystem, "second", overwrite=False)
    HadoopFiles(spark)._put(path, filesystem, "third", overwrite=True)
    assert (tmp_path / "object.json").read_text() == "third"


def test_of_many_jobs_one_creates(spark: Any, base: str) -> None:
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
def test_a_file_that_appears_before_it_is_created_is_kept(
    spark: Any, base: str, monkeypatch: pytest.MonkeyPatch, bucket: bool
) -> None:
    """The other job wrote between the question whether it is there and the writing."""
    if bucket and base.startswith("file:"):
        monkeypatch.setattr(hadoop_files, "_BUCKET_SCHEMES", ("file",))  # written as objects are
    files = HadoopFiles(spark)
    write = files._write

    def after_another(url: str, text: str, *, overwrite: bool) -> None:
        write(url, "another's", overwrite=False)
        write(url, text, overwrite=overwrite)

    monkeypatch.setattr(files, "_write", after_another)
    with pytest.raises(FileExistsError):
        files.create_text(f"{base}/one.json", "mine")
    assert files.read_text(f"{base}/one.json") == "another's"
    files.create_text(f"{base}/two.json", "another's")  # refused, but by the same bytes: a repeated write of its own


def test_a_conditional_create_is_not_asked_of_what_does_not_know_it(spark: Any, tmp_path: Path) -> None:
    """Such a file system would refuse the option; it is asked first whether it has it."""
    path, filesystem = HadoopFiles(spark)._locate(f"{tmp_path.as_uri()}/file")
    assert not filesystem.hasPathCapability(path, hadoop_files._CONDITIONAL)
    builder = filesystem.createFile(path).overwrite(False).recursive().must(hadoop_files._CONDITIONAL, True)
    with pytest.raises(Exception, match=f"Unknown mandatory key.*{hadoop_files._CONDITIONAL}"):
        builder.build()


def test_what_was_written_halfway_is_not_published() -> None:
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
        HadoopFiles._fill(FullDisk(), "text")
    assert calls == ["abort", "close"]


class Bucket:
    """A local file system that says of itself whether it knows conditional creates, and notes which are demanded."""

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
