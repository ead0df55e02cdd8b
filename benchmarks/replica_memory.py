"""Benchmark ``replica_memory``: peak memory of the replica job, in an Airflow task and in a Spark task.

Each case runs in its own process. ``worker`` is the process of an Airflow task that runs the embedded job. ``task`` is
the Python process of a Spark task: it receives all rows of one table as one file group and rewrites that group. The
benchmark does not need Spark. Cases:

- ``events``: 200,000 events of one new record each.
- ``create_1000``, ``create_5000``: 1,000 or 5,000 events of 200 new records each; ``update_1000``, ``update_5000``: an
  update of two columns of these records.
- ``records``: 300,000 events of one new record each, one table.
- ``texts``: 20,000 new records with a text of 8,000 characters each.

Records have 80 columns, except in ``texts``. ``mebibytes`` is the peak above ``idle_mebibytes``, the memory of the
process after it has loaded pyarrow, deltalake and, in ``worker``, Airflow. It prints one JSON line for each case and
process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa
from pyspark import cloudpickle

from airflow_provider_sfstream.landing.parquet import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from tests.support.change_lake import START, TOPIC, change
from tests.support.landing_files import LandedEvent, encode, land_window

CASES = {
    "events": 200_000,
    "create_1000": 1_000,
    "update_1000": 1_000,
    "create_5000": 5_000,
    "update_5000": 5_000,
    "records": 300_000,
    "texts": 20_000,
}
_IDS = 200
"""Number of records in an event of a mass change."""
WIDE = Entity(
    "Wide__c",
    "a0W",
    (
        Field("Name", "Text"),
        *(Field(f"Text{number}__c", "Text") for number in range(39)),
        *(Field(f"Number{number}__c", "Double") for number in range(40)),
    ),
)
LONG = Entity("Long__c", "a0L", (Field("Name", "Text"), Field("Text__c", "StringPlusClob")))
_DISTINCT = 200
_PLACEHOLDER = "a0X000000000000AAA"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES, help="case to run; default: all")
    parser.add_argument("--only", choices=("worker", "task"))
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES, help="the job's batch_bytes; default: its own")
    parser.add_argument("--worker", nargs=2, metavar=("MANIFEST", "OUTPUT"), help=argparse.SUPPRESS)
    parser.add_argument("--send", nargs=3, metavar=("MANIFEST", "OUTPUT", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--task", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.INFO)
    if given.worker:
        print(json.dumps(worker(*given.worker, given.batch_bytes)))
    elif given.send:
        send(*given.send, given.batch_bytes)
    elif given.task:
        print(json.dumps(task(Path(given.task))))
    else:
        for case in given.case or CASES:
            with tempfile.TemporaryDirectory() as name:
                measure(case, Path(name), given.only, given.batch_bytes)


def measure(case: str, folder: Path, only: str | None, batch_bytes: int) -> None:
    """Measure a case and print its figures."""
    output, option = folder / "replica", f"--batch-bytes={batch_bytes}"
    manifest = land(folder / "landing", case)
    if case.startswith("update"):
        first = manifest
        _child("--worker", first, str(output), option)
        manifest = land(folder / "landing", case, after=CASES[case])
    if only != "worker":
        copy = folder / "copy"
        shutil.copytree(output, copy) if output.exists() else copy.mkdir()
        _child("--send", manifest, str(copy), str(folder), option)
        figures = json.loads(_child("--task", str(folder), ARROW_DEFAULT_MEMORY_POOL="system"))
        _report(case, "task", figures)
    if only != "task":
        _report(case, "worker", json.loads(_child("--worker", manifest, str(output), option)))


def worker(manifest: str, output: str, batch_bytes: int) -> dict[str, Any]:
    """Run the job in this process; return its figures."""
    from airflow_provider_sfstream.operators.replica import ReplicaOperator
    from tests.support.tasks import context_for

    operator = ReplicaOperator(task_id="job", windows=manifest, output_url=output, batch_bytes=batch_bytes)
    idle, started = peak(), time.time()
    operator.execute(context_for("job"))
    return _figures(idle, started)


def send(manifest: str, output: str, folder: str, batch_bytes: int) -> None:
    """Store the shuffled blocks of a run, all for one file group, and the function of the receiving task."""
    from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
    from airflow_provider_sfstream.tables.replica import delta_sink, job
    from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
    from airflow_provider_sfstream.tables.rows.shuffle import BLOCK
    from airflow_provider_sfstream.tables.runner.embedded import ArrowFrame, EmbeddedEngine

    class Sent(ArrowFrame):
        def map_batches(self, make: Any, schema: pa.Schema) -> Any:
            with pa.OSFile(f"{folder}/blocks", "wb") as sink, pa.ipc.new_stream(sink, BLOCK) as writer:
                for batch in self.batches(None):
                    writer.write(batch)
            Path(folder, "task").write_bytes(cloudpickle.dumps(make))
            raise SystemExit

    class Engine(EmbeddedEngine):
        def shuffle_blocks(self, blocks: ArrowFrame, also: Any, file_groups: int) -> ArrowFrame:
            return Sent(super().shuffle_blocks(blocks, also, file_groups).batches)

    delta_sink._MANY = sys.maxsize  # one file group
    copies = Path(folder, "copies")
    copies.mkdir()
    engine = Engine(ObjectStorageFiles(None), ObjectStorageFiles(None), copies)
    job.run(engine, ReplicaConfig(manifests=(manifest,), output_url=output, batch_bytes=batch_bytes))


def task(folder: Path) -> dict[str, Any]:
    """Run the task in this process; return its figures."""
    make = cloudpickle.loads((folder / "task").read_bytes())

    def blocks() -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(folder / "blocks")) as source:
            yield from pa.ipc.open_stream(source)

    idle, started = peak(), time.time()
    files = [line["path"] for batch in make(blocks()) for line in batch.to_pylist() if line["path"]]
    assert files, "nothing was written"
    return _figures(idle, started)


def land(folder: Path, case: str, after: int = 0) -> str:
    """Land the window of a case; return its manifest's URL.

    :param after: number of events in the previous window, whose records this window updates; 0: no previous window.
    """
    kind, count = case.split("_")[0], CASES[case]
    entity = LONG if case == "texts" else WIDE
    if kind in ("create", "update"):
        type_ = "UPDATE" if after else "CREATE"
        events = [
            change(
                after + number + 1,
                type_,
                [_id(entity, number * _IDS + each) for each in range(_IDS)],
                f"t{number}",
                entity=entity,
                **_values(number, after),
            )
            for number in range(count)
        ]
    else:
        made = _long_text if case == "texts" else _values
        payloads = [
            encode(
                entity.schema(),
                change(number, "CREATE", [_PLACEHOLDER], f"t{number}", entity=entity, **made(number)).record,
            )
            for number in range(_DISTINCT)
        ]
        events = []
        for number in range(count):
            own = payloads[number % _DISTINCT].replace(_PLACEHOLDER.encode(), _id(entity, number).encode())
            events.append(LandedEvent(number + 1, entity.name, own))
    bytes_ = len(events[0].record) * count if isinstance(events[0].record, bytes) else 0
    name, link = "20260110T000000Z-window{}", dict[str, Any]()
    if after:
        link = {"previous_window_id": name.format(0), "after": LandedEvent(after, None, b"").replay_id}
    return land_window(
        folder,
        name.format(int(after > 0)),
        events,
        {entity.name: entity.schema()},
        event_times=(START, START),
        topic=TOPIC,
        # Each part is one row group, no larger than the row groups that a drain writes.
        parts=max(-(-count // ROW_GROUP_ROWS), -(-bytes_ // ROW_GROUP_BYTES)),
        **link,
    )


def peak() -> int:
    """Return the peak resident size of this process in KiB; ``ru_maxrss`` would include its parent's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _figures(idle: int, started: float) -> dict[str, Any]:
    most, seconds = peak(), round(time.time() - started, 1)
    return {"mebibytes": (most - idle) >> 10, "idle_mebibytes": idle >> 10, "seconds": seconds}


def _report(case: str, process: str, figures: dict[str, Any]) -> None:
    total = figures["mebibytes"] + figures["idle_mebibytes"]
    line = {"benchmark": "replica_memory", "ratio": None, "case": case, "process": process, "total_mebibytes": total}
    print(json.dumps({**line, **figures}), flush=True)


def _child(*arguments: str, **environment: str) -> str:
    """Run this script in a new process and return the last line of its output."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise RuntimeError(done.stderr[-4_000:])
    return "".join(done.stdout.splitlines()[-1:])


def _id(entity: Entity, number: int) -> str:
    return f"{entity.key_prefix}{number:012d}AAA"


def _values(number: int, after: int = 0) -> dict[str, Any]:
    if after:
        return {"Name": f"renamed {number}", "Number0__c": float(number)}
    texts = {f"Text{n}__c": f"value {n} of event {number}" for n in range(39)}
    return {"Name": f"name {number}", **texts, **{f"Number{n}__c": number + n / 8 for n in range(40)}}


def _long_text(number: int) -> dict[str, Any]:
    return {"Name": f"name {number}", "Text__c": random.Random(number).randbytes(4_000).hex()}


if __name__ == "__main__":
    main()
