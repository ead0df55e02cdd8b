"""Benchmarks ``embedded_platform_events``, ``embedded_change_events``, ``embedded_spark``, ``embedded_replica_spark``
and ``embedded_small``: the embedded engine, compared with a fastavro loop that writes the same Parquet and with the
Spark jobs, for each core; and its time for a small window.

The windows contain platform events (about 150 bytes, 12 columns) or change events (about 430 bytes, 100 columns). The
engine and the loop each run in a process that may use one core, Spark runs with ``local[2]``. The first round warms up;
the results are medians of the other rounds. It prints one JSON line for each benchmark. ``ratio`` is the package's
events per core and second divided by those of the other side, or seconds of wall time for the small window.
``mebibytes`` is the peak memory above that of a process that has loaded Airflow. The outputs of both sides are compared
row by row.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks import event_log
from tests.support.landing_files import LandedEvent, land_window

DISTINCT = 50_000
"""Number of different payloads; further events repeat them."""
_ORDER = {
    "type": "record",
    "name": "Order__e",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
        *({"name": f"Text{n}__c", "type": ["null", "string"], "doc": "Data:Text:00N"} for n in range(4)),
        *({"name": f"Amount{n}__c", "type": ["null", "double"], "doc": "Data:Double:00N"} for n in range(3)),
        {"name": "Sent__c", "type": ["null", "boolean"], "doc": "Data:Boolean:00N"},
        {"name": "Due__c", "type": ["null", "long"], "doc": "Data:DateOnly:00N"},
        {"name": "At__c", "type": ["null", "long"], "doc": "Data:DateTime:00N"},
    ],
}
KINDS = {"platform": ("/event/Order__e", "Order__e"), "change": (event_log.TOPIC, event_log.TABLE)}


def schema(kind: str) -> dict[str, Any]:
    """Return the Avro schema of a kind of events."""
    return event_log.schema() if kind == "change" else json.loads(json.dumps(_ORDER))


def land(folder: Path, kind: str, count: int) -> str:
    """Land ``count`` events of three days; return the manifest's URL."""
    shape, avro = random.Random(1), schema(kind)
    parsed = fastavro.parse_schema(json.loads(json.dumps(avro)))
    payloads = []
    for number in range(min(count, DISTINCT)):
        make, stream = {"change": event_log._event, "platform": _order}[kind], io.BytesIO()
        record = make(number, min(count, DISTINCT), shape)
        if kind == "change":  # a replica stores all fields of change events
            ids = [f"001{number * 7_919 % DISTINCT:012d}AAA"]
            record["ChangeEventHeader"] |= {"changeType": "CREATE", "changedFields": [], "recordIds": ids}
        fastavro.schemaless_writer(stream, parsed, record)
        payloads.append(stream.getvalue())
    events = [LandedEvent(number, "one", payloads[number % DISTINCT]) for number in range(count)]
    times = (event_log.START, event_log.START + timedelta(days=3))
    name = f"20260113T000000Z-{kind}{count}"
    return land_window(folder, name, events, {"one": avro}, event_times=times, topic=KINDS[kind][0], parts=4)


def _order(number: int, count: int, shape: random.Random) -> dict[str, Any]:
    moment = int(event_log.START.timestamp() * 1000) + number * 3 * 86_400_000 // count
    texts = {f"Text{n}__c": " ".join(shape.sample(event_log.WORDS, 3)) for n in range(4)}
    amounts = {f"Amount{n}__c": shape.random() * 1000 for n in range(3)}
    rest = {"Sent__c": bool(number % 2), "Due__c": moment, "At__c": moment}
    return {"CreatedDate": moment, "CreatedById": "0055g00000ABCDEAAA", **texts, **amounts, **rest}


def loop(manifest: str, output: Path, layout: pa.Schema) -> None:
    """Process landed events without this package."""
    folder = Path(manifest.removeprefix("file://")).parent
    kind = "change" if "change" in folder.name else "platform"
    with LoopWriter(output, layout, schema(kind), KINDS[kind][0], folder.name) as writer:
        for part in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(part).iter_batches(LOOP_ROWS):
                writer.write(batch.to_pylist())


LOOP_ROWS = 8_192
"""Events that the loop converts to a table at a time."""


class LoopWriter:
    """Writer of events without this package: fastavro, a dictionary for each event, Parquet files by day.

    :param layout: columns of the output, and ``event_date``.
    """

    def __init__(self, output: Path, layout: pa.Schema, avro: dict[str, Any], topic: str, window_id: str) -> None:
        self._output, self._topic, self._window_id = output, topic, window_id
        self._stored = pa.schema([field for field in layout if field.name != "event_date"])
        self._parsed = fastavro.parse_schema(avro)
        texts = {each["name"]: each.get("doc") or "" for each in avro["fields"]}
        self._moments = [name for name, doc in texts.items() if ":DateTime" in doc]
        self._dates = [name for name, doc in texts.items() if ":DateOnly" in doc]
        self._writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> LoopWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def write(self, events: list[dict[str, Any]]) -> None:
        """Decode and store events with the columns of a landing."""
        days: dict[str, list[dict[str, Any]]] = {}
        for landed in events:
            row = fastavro.schemaless_reader(io.BytesIO(landed["payload"]), self._parsed, None)
            for name in self._moments:
                row[name] = None if row[name] is None else row[name] * 1000
            for name in self._dates:
                row[name] = None if row[name] is None else row[name] // 86_400_000
            header = row.get("ChangeEventHeader")
            time_ = header["commitTimestamp"] * 1000 if header else row["CreatedDate"]
            row |= {
                "_replay_id": landed["replay_id"],
                "_event_id": landed["event_id"],
                "_schema_id": landed["schema_id"],
                "_event_time": time_,
                "_received_at": landed["received_at"],
                "_ordinal": landed["ordinal"],
                "_topic": self._topic,
                "_org_id": "00D000000000001EAA",
                "window_id": self._window_id,
            }
            day = datetime.fromtimestamp(time_ / 1e6, UTC).date().isoformat()
            days.setdefault(day, []).append(row)
        for day, rows in days.items():
            if day not in self._writers:
                (self._output / f"event_date={day}").mkdir(parents=True)
                path = self._output / f"event_date={day}" / "part.parquet"
                self._writers[day] = pq.ParquetWriter(path, self._stored, compression="zstd", compression_level=1)
            self._writers[day].write_table(pa.Table.from_pylist(rows, self._stored))


def most_kibibytes() -> int:
    """Return the peak memory of this process since its start; ``ru_maxrss`` would include its parent's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def work(side: str, manifest: str, output: str, rounds: int) -> None:
    """Run a side in this process, and print the seconds of each round and the memory."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from airflow_provider_sfstream.operators.event_log import EventLogOperator
    from airflow_provider_sfstream.operators.replica import ReplicaOperator
    from tests.support.tasks import context_for

    kind = "change" if "change" in manifest.rsplit("/", 2)[1] else "platform"
    operator = {"replica": ReplicaOperator, "event_log": EventLogOperator}.get(side)
    layout = None
    if operator is None:
        layout = pa.schema(DeltaTable(Path(output).with_name(f"{kind}-event_log") / KINDS[kind][1]).schema().to_arrow())
    idle, seconds, cores = most_kibibytes(), [], []
    for _ in range(rounds):
        shutil.rmtree(output, ignore_errors=True)
        started, used = time.perf_counter(), time.process_time()
        if operator is None:
            loop(manifest, Path(output), layout)
        else:
            operator(task_id="job", windows=manifest, output_url=output).execute(context_for("job"))
        seconds.append(time.perf_counter() - started)
        cores.append(round((time.process_time() - used) / seconds[-1], 2))
    most = most_kibibytes()
    print(json.dumps({"seconds": seconds, "cores": cores, "mebibytes": (most - idle) // 1024}))


def measured(side: str, manifest: str, output: Path, rounds: int) -> dict[str, Any]:
    """Run :func:`work` in a new process and return its output."""
    command = [sys.executable, __file__, "--work", side, manifest, str(output), "--rounds", str(rounds)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return figures


def spark_seconds(folder: Path, manifest: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of the Spark jobs on two cores; the first round warms up."""
    from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
    from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
    from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
    from airflow_provider_sfstream.tables.replica.job import run as run_replica
    from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
    from benchmarks.sessions import session

    found: dict[str, list[float]] = {"event_log": [], "replica": []}
    with session(folder, cluster=False) as spark:
        for _ in range(rounds):
            for side, times in found.items():
                output = folder / f"change-spark-{side}"
                shutil.rmtree(output, ignore_errors=True)
                started = time.perf_counter()
                if side == "event_log":
                    run_event_log(SparkEngine(spark), EventLogConfig(manifests=(manifest,), output_url=str(output)))
                else:
                    run_replica(SparkEngine(spark), ReplicaConfig(output_url=str(output), manifests=(manifest,)))
                times.append(time.perf_counter() - started)
    return found


def compare(one: Path, other: Path, key: str, ignored: Sequence[str] = ()) -> None:
    """Compare the outputs of two sides row by row.

    :param key: column that identifies a row. ``ignored``: columns that differ.
    """
    ours, theirs = (_rows(each).sort_by(key) for each in (one, other))
    ours = ours.drop_columns([name for name in ignored if name in ours.column_names])
    theirs = theirs.select(ours.column_names).cast(ours.schema)
    assert len(ours) > 0
    assert ours.equals(theirs), f"{one} and {other} differ"


def _rows(folder: Path) -> pa.Table:
    files = DeltaTable(folder).file_uris() if (folder / "_delta_log").exists() else folder.rglob("*.parquet")
    return pa.concat_tables((pq.ParquetFile(str(file)).read() for file in files), promote_options="permissive")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs=3, metavar=("SIDE", "MANIFEST", "OUTPUT"))
    given = parser.parse_args()
    if given.work:
        work(*given.work, given.rounds)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = given.events // 5
        _small(folder, given.rounds)
        for kind in KINDS:
            _beside_loop(folder, kind, few, given.rounds)
        _beside_spark(folder, given.events, given.rounds)


def _small(folder: Path, rounds: int) -> None:
    manifest = land(folder / "landing", "platform", 1_500)
    ours = measured("event_log", manifest, folder / "small", rounds)
    # The first round counts, because it includes the imports of a new task process.
    figures = {"ratio": round(ours["seconds"][0], 2), "events": 1_500, "seconds": ours["seconds"]}
    print(json.dumps({"benchmark": "embedded_small", **figures}), flush=True)


def _beside_loop(folder: Path, kind: str, count: int, rounds: int) -> None:
    manifest = land(folder / "landing", kind, count)
    ours = measured("event_log", manifest, folder / f"{kind}-event_log", rounds)
    theirs = measured("fastavro", manifest, folder / f"{kind}-fastavro", rounds)
    compare(folder / f"{kind}-event_log" / KINDS[kind][1], folder / f"{kind}-fastavro", "_ordinal")
    medians = [statistics.median(each["seconds"][1:]) for each in (ours, theirs)]
    figures = {
        "benchmark": f"embedded_{kind}_events",
        "ratio": round(medians[1] / medians[0], 2),
        "events": count,
        "events_per_second": round(count / medians[0]),
        "fastavro_events_per_second": round(count / medians[1]),
        "seconds": {"ours": ours["seconds"], "fastavro": theirs["seconds"]},
        "mebibytes": ours["mebibytes"],
    }
    print(json.dumps(figures), flush=True)


def _beside_spark(folder: Path, count: int, rounds: int) -> None:
    manifest = land(folder / "landing", "change", count)
    spark = spark_seconds(folder, manifest, rounds)
    for side, benchmark in (("event_log", "embedded_spark"), ("replica", "embedded_replica_spark")):
        ours = measured(side, manifest, folder / f"change-{side}", rounds)
        table, key = (event_log.TABLE, "_ordinal") if side == "event_log" else ("Account", "Id")
        compare(folder / f"change-{side}" / table, folder / f"change-spark-{side}" / table, key)
        mine, theirs = statistics.median(ours["seconds"][1:]), statistics.median(spark[side][1:])
        figures = {
            "benchmark": benchmark,
            "ratio": round(2 * theirs / mine, 2),
            "events": count,
            "events_per_core_and_second": round(count / mine),
            "spark_events_per_core_and_second": round(count / theirs / 2),
            "seconds": {"ours": ours["seconds"], "spark": spark[side]},
            "mebibytes": ours["mebibytes"],
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
