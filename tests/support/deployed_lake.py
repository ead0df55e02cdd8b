"""The lake of a deployment: read over S3, and mounted as a folder for Spark, whose package has no S3 connector."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

SPARK_ON_A_MOUNT = """
# s3a:// without Hadoop's connector: the same server's files, through a mount of it.
spark.hadoop.fs.s3a.impl                                   org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme
spark.hadoop.fs.viewfs.mounttable.lake.link./salesforce    file://{mount}/lake/salesforce
spark.hadoop.fs.file.impl                                  org.apache.hadoop.fs.RawLocalFileSystem
spark.hadoop.fs.AbstractFileSystem.file.impl               org.apache.hadoop.fs.local.RawLocalFs
"""


class DeployedLake:
    """``s3://lake/salesforce`` on a storage server at a loopback port, read with the identity ``spark``."""

    def __init__(self, port: int, secret_key: str) -> None:
        self._options = {
            "AWS_ACCESS_KEY_ID": "spark",
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    def orders(self) -> list[tuple[bytes, str, float]]:
        """Return replay ID, number and amount of each row of the event log, in stream order."""
        columns = ["_replay_id", "Order_Number__c", "Amount__c"]
        table = DeltaTable("s3://lake/salesforce/tables/Order__e", storage_options=self._options)
        table = table.to_pyarrow_table(columns=columns)
        return sorted(tuple(row[name] for name in columns) for row in table.to_pylist())

    def accounts(self, fields: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
        """Return the rows of the replica by record ID: values of ``fields``, ``_deleted`` and ``_dirty``."""
        rows = DeltaTable("s3://lake/salesforce/replica/Account", storage_options=self._options)
        listed = rows.to_pyarrow_table().to_pylist()
        return {row["Id"]: (*(row[field] for field in fields), row["_deleted"], row["_dirty"]) for row in listed}
