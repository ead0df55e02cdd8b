"""Modules that the package imports, measured in processes that have imported only Airflow.

Airflow takes seconds to start. Therefore one process starts it, and forks for each check.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from scripts.installs import IMPORT_PUBLIC_MODULES, missing_extras

PROGRAM = """
import json, os, sys, traceback
import airflow.sdk
airflow.sdk.Asset, airflow.sdk.AssetWatcher, airflow.sdk.BaseHook, airflow.sdk.BaseOperator
seen = {}
for name, (first, looked_at, environment) in json.load(sys.stdin).items():
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.environ.update(environment)
            names = {}
            exec(first, names)
            before = set(sys.modules)
            exec(looked_at, names)
            outcome = {"loaded": sorted(set(sys.modules) - before), "result": names.get("result")}
        except BaseException:
            outcome = {"error": traceback.format_exc()}
        with os.fdopen(writing, "w") as pipe:
            json.dump(outcome, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        seen[name] = json.load(pipe)
    os.wait()
print(json.dumps(seen))
"""

ASSET = "from airflow_provider_sfstream.assets.salesforce_stream import salesforce_topic_asset\n"
PRUNE = """
from datetime import timedelta
from airflow_provider_sfstream.operators.prune_replay_windows import PruneReplayWindowsOperator as Prune
Prune(task_id="prune", topic="/event/Order__e", landing_url="s3://lake", older_than=timedelta(days=9),
      replica_urls=[], event_log_urls=[])
"""
ERASE = """
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator as Erase
Erase(task_id="erase", entity="Contact", ids=[], landing_url="s3://lake", event_log_urls=[],
      replica_urls=[])
"""
LIGHT: dict[str, tuple[str, str, set[str]]] = {
    # Triggers are loaded on the triggerer's event loop, DAG files in the DAG processor.
    "the hook": (
        "",
        "import airflow_provider_sfstream.hooks.salesforce_pubsub",
        {"grpc", "pyarrow", "fastavro", "pyruhvro", "google.protobuf", "jwt"},
    ),
    # Airflow also loads the assets of other providers, so their imports do not count.
    "a DAG file that watches": (
        "import airflow.triggers.base, airflow.providers.common.compat.assets",
        ASSET + "salesforce_topic_asset('/event/Order__e')",
        {"grpc", "pyarrow", "fastavro", "pyruhvro", "sqlalchemy", "httpx", "pyspark"},
    ),
    "the handler of asset URIs": (
        "",
        "import airflow_provider_sfstream.assets.sfstream",
        {"grpc", "pyarrow", "fastavro", "pyruhvro", "sqlalchemy", "httpx", "airflow.triggers.base"},
    ),
    "a DAG file that prunes": ("", PRUNE, {"pyarrow", "sqlalchemy", "fsspec", "grpc", "pyspark"}),
    "a DAG file that erases": ("", ERASE, {"pyarrow", "sqlalchemy", "fsspec", "grpc", "pyspark", "fastavro"}),
    # Every component of Airflow loads plugins, tasks too.
    "the plugin": (
        "import airflow.plugins_manager",
        "import airflow_provider_sfstream.plugins.streams",
        {"fastapi", "starlette", "sqlalchemy", "airflow.api_fastapi.app"},
    ),
    "a DAG file without Spark": (
        "",
        "import airflow_provider_sfstream.operators.event_log, airflow_provider_sfstream.operators.replica",
        {
            "pyspark",
            "airflow.providers.apache.spark.operators",
            "pyarrow",
            "numpy",
            "deltalake",
            "fastavro",
            "grpc",
            "sqlalchemy",
        },
    ),
    "a DAG file that refreshes": (
        "",
        "import airflow_provider_sfstream.operators.spark_submit_refresh_replica",
        {"simple_salesforce", "zeep", "pyarrow", "fastavro"},
    ),
    "a DAG file that publishes": (
        "",
        "import airflow_provider_sfstream.operators.publish_events",
        {"grpc", "pyarrow", "fastavro", "deltalake", "fsspec", "sqlalchemy"},
    ),
    "a DAG file that drains": (
        "",
        "import airflow_provider_sfstream.operators.drain_replay_window",
        {"grpc", "pyarrow", "fastavro", "pyruhvro", "sqlalchemy", "openlineage", "airflow.providers.openlineage"},
    ),
}
"""Checks by name: code to run before, code to check, and modules that it must not import."""

WITHOUT: dict[str, tuple[str, set[str], str]] = {
    "iceberg": ("pyiceberg", {"iceberg"}, 'catalog_properties("catalog")'),
    "messaging": ("airflow.providers.common.messaging.providers.base_provider", {"messaging"}, ""),
    "salesforce": ("simple_salesforce", {"salesforce"}, ""),
    "spark": ("airflow.providers.apache.spark pandas py4j pyspark", {"spark"}, ""),
    "streaming": (
        "aiosfstream aiocometd aiohttp",
        {"streaming"},
        """
        drain.DrainReplayWindowOperator(task_id="drain", topic="/topic/Orders", landing_url="/lake")
        drain.DrainReplayWindowOperator(task_id="drain", topic="/event/Order__e", landing_url="/lake", api="streaming")
        sensor.SalesforceEventSensor(task_id="wait", topic="/u/Orders")
        asset.salesforce_topic_asset("/topic/Orders")
        """,
    ),
    "tables": (
        "arro3 deltalake numpy",
        {"spark", "tables"},
        """
        publish.PublishEventsOperator(task_id="publish", topic="/event/Order__e", results_url="/lake", table="/lake/t")
        windows.read_windows([])
        ObjectStorageFiles(None).table_location("/lake")
        newest_version(None)
        """,
    ),
}
"""By missing extra: its modules, the extras that public modules then name, and calls that name the missing one."""
CALLS = """
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles, newest_version
from airflow_provider_sfstream.actions.tables.iceberg_catalog import catalog_properties
from airflow_provider_sfstream.assets import salesforce_stream as asset
from airflow_provider_sfstream.operators import drain_replay_window as drain, publish_events as publish
from airflow_provider_sfstream.sensors import salesforce_event as sensor
from airflow_provider_sfstream import windows
for call in filter(None, map(str.strip, CALLS.splitlines())):
    try:
        exec(call)
        result[call] = "no error"
    except package.exceptions.ConfigurationError as error:
        result[call] = str(error)
"""
MISSING_OPENLINEAGE = """
import sys
sys.modules["openlineage"] = sys.modules["airflow.providers.openlineage.extractors"] = None
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
operators = (
    DrainReplayWindowOperator(task_id="drain", topic="/event/Order__e", landing_url="/lake"),
    SparkSubmitRefreshReplicaOperator(task_id="refresh", output_url="/lake"),
    SparkSubmitEventLogOperator(task_id="event_log", windows=[], output_url="/lake"),
)
result = [(each.get_openlineage_facets_on_start(), each.get_openlineage_facets_on_complete(None)) for each in operators]
"""
DEFERRABLE = """
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor
result = SalesforceEventSensor(task_id="wait", topic="/event/Order__e").deferrable
"""

Seen = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Return the modules that each check imported, and its ``result``."""
    checks: dict[str, tuple[str, str, dict[str, str]]] = {name: (*check[:2], {}) for name, check in LIGHT.items()}
    for extra, (modules, _, calls) in WITHOUT.items():
        blocked = f"import sys; sys.modules.update(dict.fromkeys({modules.split()!r}))"
        checks[f"without {extra}"] = (blocked, f"{IMPORT_PUBLIC_MODULES}\nCALLS = {calls!r}\n{CALLS}", {})
    checks["without openlineage"] = ("", MISSING_OPENLINEAGE, {})
    for configured in ("True", "False"):
        checks[f"deferrable {configured}"] = ("", DEFERRABLE, {"AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": configured})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(checks),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    outcomes: Seen = json.loads(done.stdout.splitlines()[-1])
    assert outcomes.keys() == checks.keys()
    return outcomes


@pytest.mark.parametrize("name", LIGHT)
def test_slow_modules_are_not_imported(seen: Seen, name: str) -> None:
    loaded = set(seen[name]["loaded"])
    assert any(module.startswith("airflow_provider_sfstream") for module in loaded)
    assert LIGHT[name][2] & loaded == set()


@pytest.mark.parametrize("extra", WITHOUT)
def test_public_modules_and_calls_without_an_extra_name_it_or_work(seen: Seen, extra: str) -> None:
    _, named, calls = WITHOUT[extra]
    errors = seen[f"without {extra}"].get("result")
    assert errors is not None, seen[f"without {extra}"].get("error")
    assert missing_extras(errors) == named
    in_calls = {call: errors[call] for call in map(str.strip, calls.splitlines()) if call}
    assert not in_calls or missing_extras(in_calls) == {extra}


def test_missing_openlineage_provider_disables_lineage_without_an_error(seen: Seen) -> None:
    assert seen["without openlineage"].get("result") == [[None, None]] * 3, seen["without openlineage"].get("error")


@pytest.mark.parametrize("configured", [True, False])
def test_the_configuration_decides_whether_a_sensor_defers(seen: Seen, configured: bool) -> None:
    assert seen[f"deferrable {configured}"]["result"] is configured
