"""The lake of a deployment: read over S3, and shown as a folder to Spark, which has no S3 connector in its package."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow import fs

SPARK_ON_A_MOUNT = """
# s3a:// without Hadoop's connector: the same server's files, through a mount of it.
spark.hadoop.fs.s3a.impl                                   org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme
spark.hadoop.fs.viewfs.mounttable.lake.link./salesforce    file://{mount}/lake/salesforce
spark.hadoop.fs.file.impl                                  org.apache.hadoop.fs.RawLocalFileSystem
spark.hadoop.fs.AbstractFileSystem.file.impl               org.apache.hadoop.fs.local.RawLocalFs
"""


class DeployedLake:
    """``s3://lake/salesforce`` of a storage on a loopback port, read with the identity ``spark``."""

    def __init__(self, port: int, secret_key: str) -> None:
        self._options = {
            "AWS_ACCESS_KEY_ID": "spark",
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
        self._files = fs.S3FileSystem(
            access_key="spark",
            secret_key=secret_key,
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
        )

    def orders(self) -> list[tuple[bytes, str, float]]:
        """Return replay ID, number and amount of each row of the event log, in stream order."""
        columns = ["_replay_id", "Order_Number__c", "Amount__c"]
        table = DeltaTable("s3://lake/salesforce/tables/Order__e", storage_options=self._options)
        table = table.to_pyarrow_table(columns=columns)
        return sorted(tuple(row[name] for name in columns) for row in table.to_pylist())

    def accounts(self, fields: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
        """Return each row of the replica: its fields, whether it is deleted and whether it is dirty."""
        replica = "lake/salesforce/replica"
        names = [f"{replica}/{name}" for name in self._snapshot(replica)["tables"]["Account"]["files_flat"]]
        rows = ds.dataset(names, filesystem=self._files).to_table().to_pylist()
        return {row["Id"]: (*(row[field] for field in fields), row["_deleted"], row["_dirty"]) for row in rows}

    def _snapshot(self, replica: str) -> dict[str, Any]:
        found = self._files.get_file_info(fs.FileSelector(f"{replica}/_sfstream/replica/snapshots"))
        newest = max(one.path for one in found if one.path.endswith(".json"))
        with self._files.open_input_stream(newest) as file:
            snapshot: dict[str, Any] = json.loads(file.read())
        for table in snapshot["tables"].values():
            table["files_flat"] = [name for names in table["files"].values() for name in names]
        return snapshot
