"""Benchmark ``replica_decode``: decoding of landed change events into change rows, compared with fastavro.

The other side is a straightforward implementation: it reads each payload with ``fastavro.schemaless_reader``, decodes
the bitmaps as Salesforce's examples do, and builds one dict for each record and an Arrow batch of the dicts. Both sides
receive the same batches of change events of Account (about 430 bytes), must return equal rows, and run alternately: in
this process (CPU seconds), and in Spark on two cores, as ``mapInArrow`` with discarded output.

It prints a JSON line for each case; ``ratio`` is the package's events per second divided by those of the other side.
Each event changes one of 300 sets of fields, as applications do; with ``_distinct`` nearly every event has its own set.
``_10x`` means ten times as many events.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.tables.rows.change_batches import ChangePlan, change_rows
from airflow_provider_sfstream.tables.rows.event_batches import SchemaPlan
from airflow_provider_sfstream.tables.rows.replica_columns import replica_columns
from sfstream_localorg.records.bitmaps import bitmap
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from tests.support.landing_files import RAW, RECEIVED_AT
from tests.support.spark import start_session

SCHEMA = STANDARD_ENTITIES[0].schema()
COLUMNS = replica_columns(json.dumps(SCHEMA))
TABLE = {column.name: column.type for column in COLUMNS}
PLAN = ChangePlan(TABLE, {"account": SchemaPlan(json.dumps(SCHEMA), tuple(TABLE), (None,) * len(TABLE))}, (1,))
OPERATIONS = {"CREATE": "full", "UNDELETE": "full", "UPDATE": "patch", "DELETE": "delete"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 1_768_006_923_004
BATCH = 10_000
"""Rows of an Arrow batch: Spark's default."""
WORDS = ("order", "customer", "shipped", "pending", "address", "street", "city", "country", "phone", "invoice", "note")
ADDRESS, STREET_AND_CITY = 5, (0, 1)
NAME, LAST_MODIFIED = 1, 23

Batches = Iterator[pa.RecordBatch]


def landed(count: int, distinct: bool) -> pa.Table:
    """Return landed change events: mostly updates of a few fields."""
    shape, parsed = random.Random(1), fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    simple = [column.position for column in COLUMNS if column.part is None and column.position != LAST_MODIFIED]
    kinds = [_kind(shape, simple) for _ in range(count if distinct else 300)]
    payloads = []
    for number in range(count):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, _event(number, *shape.choice(kinds), shape))
        payloads.append(stream.getvalue())
    replay_ids = [number.to_bytes(8, "big") + b"\0\0" for number in range(count)]
    ids = [pa.nulls(count, pa.string()), pa.array(["account"] * count)]
    arrays = [range(count), replay_ids, *ids, payloads, [RECEIVED_AT] * count]
    return pa.table(arrays, schema=RAW)


def _kind(shape: random.Random, simple: list[int]) -> tuple[list[int], list[int], bool]:
    chosen = shape.sample(simple, 7)
    return chosen, chosen[:1] if shape.random() < 0.5 else [], shape.random() < 0.3


def _event(number: int, chosen: list[int], nulled: list[int], with_address: bool, shape: random.Random) -> Any:
    change = shape.choices(("UPDATE", "CREATE", "DELETE", "UNDELETE", "GAP_UPDATE"), (90, 6, 3, 0.5, 0.5))[0]
    update, header_only = change == "UPDATE", change in ("DELETE", "GAP_UPDATE")
    nested = {ADDRESS: STREET_AND_CITY} if with_address else {}
    header = {
        "entityName": "Account",
        "recordIds": [f"001{shape.getrandbits(39):012d}AAA" for _ in range(2 if shape.random() < 0.05 else 1)],
        "changeType": change,
        "changeOrigin": "com/salesforce/api/soap/65.0;client=Bench",
        "transactionKey": f"{shape.getrandbits(32):08x}-{shape.getrandbits(64):016x}",
        "sequenceNumber": 1 + number % 7,
        "commitTimestamp": START + number,
        "commitNumber": 10_000_000_000 + number,
        "commitUser": "0055g00000ABCDEAAA",
        "nulledFields": bitmap(nulled, {}) if update else [],
        "diffFields": [],
        "changedFields": bitmap({*chosen, LAST_MODIFIED}, nested) if update else [],
    }
    record: dict[str, Any] = {"ChangeEventHeader": header}
    if header_only:
        return record
    for position in {*chosen, LAST_MODIFIED}.difference(nulled):
        field = SCHEMA["fields"][position]
        record[field["name"]] = _value(field["type"][1], START + number, shape)
    if with_address:
        record["BillingAddress"] = {"Street": " ".join(shape.sample(WORDS, 4)), "City": "Berlin"}
    return record


def _value(kind: str, moment: int, shape: random.Random) -> Any:
    if kind == "string":
        return " ".join(shape.sample(WORDS, 5))
    return {"double": shape.random() * 1000, "long": moment, "int": moment & 0xFFFF, "boolean": True}[kind]


class FastavroReader:
    """Straightforward decoder of change rows: one event, one field, one record after another."""

    def __init__(self) -> None:
        self._parsed = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
        self._fields = [field["name"] for field in SCHEMA["fields"]]
        self._by_position: dict[int, list[tuple[int, Any]]] = {}
        for at, column in enumerate(COLUMNS):
            self._by_position.setdefault(column.position, []).append((at, column))

    def rows(self, ordinal: int, replay_id: bytes, payload: bytes) -> list[dict[str, Any]]:
        event: Any = fastavro.schemaless_reader(io.BytesIO(payload), self._parsed, None)
        header = event["ChangeEventHeader"]
        operation = OPERATIONS.get(header["changeType"], "gap")
        chosen: dict[int, Any] = {}
        if operation == "full":
            chosen = dict(enumerate(COLUMNS))
        elif operation == "patch":
            for entries in (header["changedFields"], header["nulledFields"]):
                chosen |= _named(entries, self._by_position)
        bits = sum(1 << at for at in chosen)
        words = [bits >> shift & (1 << 64) - 1 for shift in range(0, len(COLUMNS), 64)]
        row = {column.name: _read(event[self._fields[column.position]], column) for column in chosen.values()}
        row |= {
            "_sequence": ordinal + 1,
            "_operation": operation,
            "_dirty_reason": "gap" if operation == "gap" else None,
            "_set": [word - (1 << 64) if word >> 63 else word for word in words],
            "_replay_id": bytes(replay_id),
            "_commit_time": EPOCH + timedelta(milliseconds=header["commitTimestamp"]),
            "_transaction_key": header["transactionKey"],
        }
        return [row | {"Id": record_id} for record_id in header["recordIds"]]


def fastavro_rows(batches: Batches) -> Batches:
    """Decode batches with fastavro; the compared side as a function for ``mapInArrow``."""
    reader, schema = FastavroReader(), PLAN.layout
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("ordinal", "replay_id", "payload"))
        rows = [row for event in zip(*columns, strict=True) for row in reader.rows(*event)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _named(entries: list[str], by_position: dict[int, list[tuple[int, Any]]]) -> dict[int, Any]:
    """Return the columns that bitmap entries name, as Salesforce's examples read them: by their binary digits."""
    found: dict[int, Any] = {}
    for entry in entries:
        parent, _, digits = entry.rpartition("-")
        for position, bit in enumerate(reversed(bin(int(digits, 16))[2:])):
            if bit == "1" and parent:
                found |= {at: column for at, column in by_position[int(parent)] if column.part == position}
            elif bit == "1":
                found |= dict(by_position.get(position, ()))
    return found


def _read(value: Any, column: Any) -> Any:
    if isinstance(value, dict):
        return list(value.values())[column.part] if column.part is not None else None
    if value is None or column.part is not None:
        return None
    if column.type in ("timestamp", "date"):
        moment = EPOCH + timedelta(milliseconds=value)
        return moment if column.type == "timestamp" else moment.date()
    return value


def ours(batches: Batches) -> Batches:
    return change_rows(PLAN, [].append)(batches)


def as_executors_get_it(table: pa.Table) -> list[pa.RecordBatch]:
    """Return a table in batches as ``mapInArrow`` passes them to executors."""
    table = table.append_column("window", pa.array([0] * len(table), pa.int32()))
    return table.append_column("format", pa.array(["avro"] * len(table))).to_batches(BATCH)


def check(batches: list[pa.RecordBatch]) -> None:
    """Compare the rows of both sides.

    :raises SystemExit: if they differ.
    """
    one, other = (
        pa.Table.from_batches(side(iter(batches))).sort_by([("_sequence", "ascending"), ("Id", "ascending")])
        for side in (ours, fastavro_rows)
    )
    if not one.equals(other):
        raise SystemExit("the rows of the two sides differ")


def in_turn(sides: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Run the sides alternately; return the seconds of each round by side."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, act in sides.items():
            started = clock()
            act()
            seconds[side].append(clock() - started)
    return seconds


def in_process(table: pa.Table, rounds: int) -> dict[str, list[float]]:
    """Return CPU seconds: both sides run on one core, and the machine may be busy with other processes."""
    batches = as_executors_get_it(table)
    check(batches[:1])

    def run(side: Callable[[Batches], Batches]) -> None:
        for _ in side(iter(batches)):
            pass

    return in_turn({"ours": lambda: run(ours), "fastavro": lambda: run(fastavro_rows)}, rounds, time.process_time)


def in_spark(spark: Any, files: list[str], rounds: int) -> dict[str, list[float]]:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = spark.read.schema(from_arrow_schema(RAW)).parquet(*files)
    rows = rows.withColumns({"window": f.lit(0), "format": f.lit("avro")})
    layout = from_arrow_schema(PLAN.layout)
    results = {
        "ours": rows.mapInArrow(change_rows(PLAN, [].append), layout),
        "fastavro": rows.mapInArrow(fastavro_rows, layout),
    }

    def run(result: Any) -> None:
        result.write.format("noop").mode("overwrite").save()

    sides = {side: partial(run, result) for side, result in results.items()}
    return in_turn(sides, rounds, time.perf_counter)


def report(name: str, events: int, size: float, seconds: dict[str, list[float]]) -> None:
    middle = {side: statistics.median(times) for side, times in seconds.items()}
    figures = {
        "benchmark": name,
        "ratio": round(middle["fastavro"] / middle["ours"], 1),
        "events": events,
        "bytes_per_event": round(size),
        "events_per_second": round(events / middle["ours"]),
        "fastavro_events_per_second": round(events / middle["fastavro"]),
        "seconds": {side: [round(t, 2) for t in times] for side, times in seconds.items()},
    }
    print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the small measurements; large ones run once")
    parser.add_argument("--without-10x", action="store_true")
    given = parser.parse_args()
    table, distinct = (landed(given.events, one) for one in (False, True))
    size = sum(map(len, table.column("payload").to_pylist())) / len(table)
    scales = [("", 1, given.rounds)] + ([] if given.without_10x else [("_10x", 10, 1)])
    with tempfile.TemporaryDirectory() as name:
        files = [f"{name}/part-{number}.parquet" for number in range(2 * scales[-1][1])]
        for number, file in enumerate(files):  # two for each 1x, one for each core
            half = given.events // 2
            pq.write_table(table.slice(number % 2 * half, half), file)
        in_process(table.slice(0, BATCH), 1)  # warm-up: fill the caches before the measurement
        for suffix, times, rounds in scales:
            measured = in_process(pa.concat_tables([table] * times), rounds)
            report(f"replica_decode{suffix}", given.events * times, size, measured)
        report("replica_decode_distinct", given.events, size, in_process(distinct, 1))
        spark = start_session(Path(name))
        in_spark(spark, files[:2], 1)
        for suffix, times, rounds in scales:
            measured = in_spark(spark, files[: 2 * times], rounds)
            report(f"replica_decode_spark{suffix}", given.events * times, size, measured)
        spark.stop()


if __name__ == "__main__":
    main()
