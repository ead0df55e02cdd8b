"""The S3 server of the tests: written objects exist after a kill and in a mount."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.packages import FUSE, need

pytestmark = pytest.mark.extended


def test_objects_survive_a_kill_and_conditional_writes_are_refused(tmp_path: Path) -> None:
    with ObjectStorage.running(tmp_path / "server") as storage:
        storage.client().put_object(Bucket=BUCKET, Key="a/b", Body=b"first", IfNoneMatch="*")
        with storage.down(), pytest.raises(EndpointConnectionError):
            storage.client().list_buckets()
        with pytest.raises(ClientError, match="PreconditionFailed"):
            storage.client().put_object(Bucket=BUCKET, Key="a/b", Body=b"second", IfNoneMatch="*")
        assert storage.client().get_object(Bucket=BUCKET, Key="a/b")["Body"].read() == b"first"
        assert storage.keys() == ["a/b"]


def test_a_mount_shows_and_writes_objects(object_storage: ObjectStorage, tmp_path: Path) -> None:
    need(FUSE)
    client = object_storage.client()
    client.put_object(Bucket=BUCKET, Key="mounted/object", Body=b"by S3")
    with object_storage.mounted(tmp_path / "mount") as mount:
        assert (mount / BUCKET / "mounted" / "object").read_bytes() == b"by S3"
        (mount / BUCKET / "mounted" / "file").write_bytes(b"by a mount")
    assert client.get_object(Bucket=BUCKET, Key="mounted/file")["Body"].read() == b"by a mount"
