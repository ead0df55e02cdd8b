"""Structured streaming query on landed windows, in a separate process that a test may kill at any time.

Spark's Parquet sink writes the rows, and commits each batch once. With ``--finish``, the query processes all available
windows, ends, and writes the replay IDs and fields of all rows to a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.spark import INTERPRETED, MASTER, SETTINGS, spark_environment


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("topic")
    parser.add_argument("--finish", type=Path)
    arguments = parser.parse_args()
    import os

    os.environ.update(spark_environment())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER).appName("streaming query")
    for name, value in (SETTINGS | INTERPRETED).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("sfstream").options(topic=arguments.topic, replay_store="landing")
    rows = source.load(str(arguments.folder / "landing"))
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(arguments.folder / "checkpoint"))
    output = str(arguments.folder / "output")
    if arguments.finish is None:
        query = writer.start(output)
        print("begun", flush=True)
        query.awaitTermination()
        return
    writer.trigger(availableNow=True).start(output).awaitTermination()
    found = [[row["_replay_id"].hex(), row["Number__c"]] for row in spark.read.parquet(output).collect()]
    arguments.finish.write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
