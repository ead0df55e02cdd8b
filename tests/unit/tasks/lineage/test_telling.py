"""From what a task knows to what a listener of OpenLineage takes; and a failure to tell is no failure of the task."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from openlineage.client.serde import Serde

from airflow_provider_sfstream.protocol.dataset_names import DatasetName
from airflow_provider_sfstream.tasks.lineage.telling import TellsLineage
from airflow_provider_sfstream.tasks.lineage.told import Column, Lineage, Told

TOPIC, STORED = DatasetName("sfstream://c", "/event/Order__e"), DatasetName("sfstream://c", "/event/Order__e?x=y")


class Operator(TellsLineage):
    """Tells what it was made with."""

    def __init__(self, lineage: Lineage | Exception) -> None:
        self._lineage = lineage

    def lineage(self, *, has_ended: bool) -> Lineage:
        if isinstance(self._lineage, Exception):
            raise self._lineage
        return self._lineage if has_ended else Lineage([Told(TOPIC)], [Told(STORED)])


def as_sent(dataset: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Serde.to_json(dataset))
    return document


def facet(document: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in document[kind][name].items() if not key.startswith("_")}


def test_everything_known_is_a_facet() -> None:
    written = Told(
        STORED,
        {"Amount__c": "double"},
        {"Amount__c": [Column(TOPIC, "Amount__c")]},
        rows=3,
        size=100,
        files=1,
        version="w1",
        also=DatasetName("s3://lake", "raw"),
    )
    lineage = Lineage([Told(TOPIC, {"Amount__c": "double"}, rows=3, size=60)], [written], [{"window_id": "w1"}])
    told = Operator(lineage).get_openlineage_facets_on_complete(None)
    [read], [stored] = map(as_sent, told.inputs), map(as_sent, told.outputs)
    assert (read["namespace"], read["name"]) == ("sfstream://c", "/event/Order__e")
    assert facet(read, "inputFacets", "inputStatistics") == {"rowCount": 3, "size": 60}
    assert facet(stored, "outputFacets", "outputStatistics") == {"rowCount": 3, "size": 100, "fileCount": 1}
    assert stored["facets"]["schema"]["fields"] == [{"name": "Amount__c", "type": "double", "fields": []}]
    origin = stored["facets"]["columnLineage"]["fields"]["Amount__c"]["inputFields"][0]
    assert (origin["namespace"], origin["name"], origin["field"]) == ("sfstream://c", "/event/Order__e", "Amount__c")
    assert origin["transformations"][0] == {"type": "DIRECT", "subtype": "IDENTITY"}
    assert facet(stored, "facets", "version") == {"datasetVersion": "w1"}
    assert stored["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "s3://lake", "name": "raw", "type": "LOCATION"}
    ]
    assert as_sent(told.run_facets["sfstream_windows"])["windows"] == [{"window_id": "w1"}]


def test_what_is_not_known_is_no_facet() -> None:
    told = Operator(Lineage()).get_openlineage_facets_on_start()
    [read], [stored] = map(as_sent, told.inputs), map(as_sent, told.outputs)
    assert (read["facets"], read["inputFacets"], stored["facets"], stored["outputFacets"]) == ({}, {}, {}, {})
    assert told.run_facets == {}


def test_no_rows_are_rows_that_are_known() -> None:
    told = Operator(Lineage([], [Told(STORED, rows=0)])).get_openlineage_facets_on_complete(None)
    assert facet(as_sent(told.outputs[0]), "outputFacets", "outputStatistics") == {"rowCount": 0}


def test_a_failure_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    operator = Operator(OSError("https://user:secret-of-ours@host refused"))
    assert operator.get_openlineage_facets_on_complete(None) is None
    assert "The lineage of this task cannot be told: OSError" in caplog.text
    assert "secret-of-ours" not in caplog.text
