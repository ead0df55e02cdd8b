"""Benchmarks ``event_log``, ``event_log_rewrite``, ``event_log_unverified``, ``event_log_json`` of the Spark job.

The job is compared with itself decoding with fastavro; with Spark rewriting the finished table, which is the minimum
cost of the job; with itself without the SHA-256 check of the landed files; and with itself on the same events as JSON,
as the Streaming API sends them, with and without their Avro schema.

There is one Spark session, and one landed window of change events (about 430 bytes in Avro, 820 in JSON; 100 columns)
in each encoding. Fast sides run alternately for several rounds after a warm-up round, and the results are medians. Slow
sides run once afterwards. With a tenth of the events, planning takes about one second of each job. It prints one JSON
line for each benchmark. ``ratio`` is the job's events per second divided by those of the other side, ``worker_mib`` the
highest resident size of a Python worker of Spark during the job.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run
from airflow_provider_sfstream.tables.event_log.reader import read_event_log
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from benchmarks.sessions import largest_worker, session
from tests.support.json_windows import JsonEvent, land_json_window
from tests.support.landing_files import LandedEvent, land_window

TOPIC, TABLE = "/data/AccountChangeEvent", "AccountChangeEvent"
START = datetime(2026, 1, 10, tzinfo=UTC)
_KINDS: dict[str, str] = {}
_TIMES = {"Data:DateTime": "%Y-%m-%dT%H:%M:%S.%fZ", "Data:DateOnly": "%Y-%m-%d"}
WORDS = ("order", "customer", "shipped", "pending", "address", "street", "city", "country", "phone", "invoice", "note")


def schema() -> dict[str, Any]:
    """Return a change event schema with the structure and size of Salesforce's schema for Account."""
    text = {"type": "array", "items": "string"}
    changes = ("CREATE", "UPDATE", "DELETE", "UNDELETE", "GAP_CREATE", "GAP_UPDATE", "GAP_DELETE", "GAP_OVERFLOW")
    header: list[tuple[str, Any]] = [
        ("entityName", "string"),
        ("recordIds", text),
        ("changeType", {"type": "enum", "name": "ChangeType", "symbols": list(changes)}),
        ("changeOrigin", "string"),
        ("transactionKey", "string"),
        ("sequenceNumber", "int"),
        ("commitTimestamp", "long"),
        ("commitNumber", "long"),
        ("commitUser", "string"),
        ("nulledFields", text),
        ("diffFields", text),
        ("changedFields", text),
    ]
    fields = [{"name": "ChangeEventHeader", "type": _record("ChangeEventHeader", header)}]
    address = _record("Address", [(n, ["null", "string"]) for n in ("Street", "City", "PostalCode", "Country")])
    person = _record("Switchable_PersonName", [(n, ["null", "string"]) for n in ("FirstName", "LastName")])
    fields.append({"name": "Name", "type": ["null", "string", person], "default": None})
    fields.append({"name": "BillingAddress", "type": ["null", address], "default": None})
    fields.append({"name": "ShippingAddress", "type": ["null", "Address"], "default": None})
    kinds = [("string", "Data:Text")] * 5 + [
        ("double", "Data:Currency"),
        ("long", "Data:DateTime"),
        ("boolean", "Data:Boolean"),
        ("long", "Data:DateOnly"),
        ("int", "Data:Integer"),
    ]
    for number in range(95):
        kind, doc = kinds[number % 10]
        _KINDS[f"Field{number}__c"] = doc
        fields.append(
            {"name": f"Field{number}__c", "type": ["null", kind], "doc": f"{doc}:00N{number}", "default": None}
        )
    return {**_record(TABLE, []), "namespace": "com.sforce.eventbus", "fields": fields}


def _record(name: str, fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": type_} for key, type_ in fields]}


def land(folder: Path, count: int) -> dict[str, str]:
    """Land ``count`` events of three days in each encoding and return the manifests' URLs by side."""
    shape = random.Random(1)
    avro = schema()
    parsed = fastavro.parse_schema(json.loads(json.dumps(avro)))
    events, in_json = [], []
    for number in range(count):
        record, stream = _event(number, count, shape), io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, record)
        events.append(LandedEvent(number, "account", stream.getvalue()))
        in_json.append(JsonEvent(number, _json_payload(number, record), "account"))
    times, name = (START, START + timedelta(days=3)), "20260113T000000Z-bench"
    schemas = {"account": avro}
    return {
        "avro": land_window(folder / "avro", name, events, schemas, event_times=times, topic=TOPIC, parts=4),
        "json": land_json_window(folder / "json", name, TOPIC, in_json, schemas),
        "json_without_schema": land_json_window(folder / "bare", name, TOPIC, in_json),
    }


def _json_payload(number: int, record: dict[str, Any]) -> bytes:
    """Return the ``data`` of an event in the format of CometD: times as text, and no hex bitmaps in the header."""
    bitmaps = ("nulledFields", "diffFields")
    header = {key: value for key, value in record["ChangeEventHeader"].items() if key not in bitmaps}
    body = {"ChangeEventHeader": header}
    for name, value in record.items():
        if name != "ChangeEventHeader":
            body[name] = _as_text(value, _KINDS[name]) if _KINDS.get(name) in _TIMES else value
    data = {"schema": "account", "payload": body, "event": {"replayId": number, "EventUuid": f"{number:032x}"}}
    return json.dumps(data, separators=(",", ":")).encode()


def _as_text(milliseconds: int, kind: str) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).strftime(_TIMES[kind])


def _event(number: int, count: int, shape: random.Random) -> dict[str, Any]:
    moment = int(START.timestamp() * 1000) + number * 3 * 86_400_000 // count
    header = {
        "entityName": "Account",
        "recordIds": [f"001{shape.getrandbits(48):015d}"],
        "changeType": "UPDATE",
        "changeOrigin": "com/salesforce/api/soap/65.0;client=Bench",
        "transactionKey": f"{shape.getrandbits(32):08x}-{shape.getrandbits(64):016x}",
        "sequenceNumber": 1 + number % 7,
        "commitTimestamp": moment,
        "commitNumber": 10_000_000_000 + number,
        "commitUser": "0055g00000ABCDEAAA",
        "nulledFields": [],
        "diffFields": [],
        "changedFields": ["0x0000000000F00C20", "2-0x06"],
    }
    record: dict[str, Any] = {"ChangeEventHeader": header, "Name": " ".join(shape.sample(WORDS, 3))}
    for field in shape.sample(range(95), 6):
        kind = field % 10
        value: Any = " ".join(shape.sample(WORDS, 3)) if kind < 5 else moment + shape.getrandbits(20)
        record[f"Field{field}__c"] = {5: shape.random() * 1000, 7: True, 9: number & 0xFFFF}.get(kind, value)
    if number % 3 == 0:
        record["BillingAddress"] = {"Street": " ".join(shape.sample(WORDS, 4)), "City": "Berlin", "PostalCode": "10115"}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=800_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster of two workers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifests = land(folder / "landing", given.events)
        with session(folder, cluster=given.cluster) as spark:
            measured, mib = measure(spark, manifests, folder, given.rounds)
    seconds = {side: statistics.median(times) for side, times in measured.items()}
    ours = {
        "cluster": given.cluster,
        "events": given.events,
        "events_per_second": round(given.events / seconds["ours"]),
    }
    others = (
        ("event_log", "fastavro"),
        ("event_log_rewrite", "rewrite"),
        ("event_log_unverified", "unverified"),
        ("event_log_json", "json"),
        ("event_log_json_without_schema", "json_without_schema"),
    )
    for benchmark, other in others:
        figures = {
            "benchmark": benchmark,
            "ratio": round(seconds[other] / seconds["ours"], 3),
            **ours,
            f"{other}_events_per_second": round(given.events / seconds[other]),
            "seconds": {side: [round(t, 2) for t in measured[side]] for side in ("ours", other)},
            "worker_mib": mib,
        }
        print(json.dumps(figures), flush=True)


def measure(spark: Any, manifests: dict[str, str], folder: Path, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Return the seconds of each round by side, and the MiB of the job's largest worker."""
    table, copy = folder / "ours" / TABLE, folder / "copy"

    def job(output: str, side: str = "avro", **options: Any) -> Callable[[], Any]:
        return lambda: run(
            SparkEngine(spark),
            EventLogConfig(manifests=(manifests[side],), output_url=(folder / output).as_uri(), **options),
        )

    def rewrite() -> None:
        rows = read_event_log(spark, table.parent.as_uri(), TABLE)
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("event_date", "window_id").parquet(str(copy))

    def with_fastavro() -> None:
        """Run the job on workers that cannot import pyruhvro."""
        hidden, environment = folder / "hidden", spark.sparkContext.environment
        hidden.mkdir(exist_ok=True)
        (hidden / "pyruhvro.py").write_text("raise ImportError\n")
        before = dict(environment)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(hidden), before.get("PYTHONPATH"))))
        try:
            decoders = job("fastavro")().decoders
        finally:
            environment.clear()
            environment.update(before)
        if decoders.keys() != {"fastavro"}:
            raise RuntimeError(f"Events were decoded by {', '.join(decoders)}, not by fastavro alone.")

    sides = {"ours": job("ours"), "rewrite": rewrite, "unverified": job("unverified", verify_files=False)}
    slow = {side: job(side, side) for side in ("json", "json_without_schema")} | {"fastavro": with_fastavro}
    measured: dict[str, list[float]] = {side: [] for side in sides | slow}
    mib: list[float] = []

    def run_once(side: str, act: Callable[[], Any]) -> None:
        shutil.rmtree(folder / ("copy" if side == "rewrite" else side), ignore_errors=True)
        with largest_worker(mib if side == "ours" else []):
            started = time.perf_counter()
            act()
            measured[side].append(time.perf_counter() - started)

    for number in range(rounds + 1):
        for side, act in sides.items():
            run_once(side, act)
            if not number:
                measured[side].clear()
    for side, act in slow.items():
        run_once(side, act)
    return measured, max(mib)


if __name__ == "__main__":
    main()
