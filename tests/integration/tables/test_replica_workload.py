"""Replica of an org with a random workload, applied window after window: the replica equals the org.

A small workload always runs; ``make test-all`` runs a longer one on a cluster (``test_replica_cluster.py``).
``SFSTREAM_REPLICA_SEEDS=50`` adds 50 full workloads to this module. ``benchmarks/replica_workload.py`` runs all
workloads and prints figures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sfstream_localorg.process import LocalOrg
from tests.support.replica_comparison import summary
from tests.support.replica_seeds import SessionJob, run_seed

SMALL = {"runs": 2, "steps": 80}
SEEDS = range(int(os.environ.get("SFSTREAM_REPLICA_SEEDS", "0")))


@pytest.mark.parametrize(
    ("seed", "size"),
    [
        pytest.param(0, SMALL, id="small"),
        *(pytest.param(seed, {}, id=str(seed), marks=pytest.mark.extended) for seed in SEEDS),
    ],
)
def test_a_replica_of_a_random_workload_equals_the_org(
    spark: Any, tmp_path: Path, seed: int, size: dict[str, int]
) -> None:
    outcome = run_seed(seed, tmp_path, SessionJob(spark, tmp_path / "replica"), **size)
    assert not outcome.unexplained, (
        f"differences before the refresh in rows that are not dirty: {summary(outcome.unexplained)}"
    )
    assert not outcome.differences, summary(outcome.differences)
    assert (outcome.dirty_after, outcome.flags_after, outcome.unverified) == (0, [], {})
    assert outcome.dirty > 0
    assert outcome.gaps > 5
    assert outcome.windows > 3


ENRICHED = {
    "AccountChangeEvent": ("Industry", "BillingAddress", "Name"),
    "ContactChangeEvent": ("Title", "Name"),
    "OpportunityChangeEvent": ("StageName",),
    "Shipment__ChangeEvent": ("Status__c", "Destination__c"),
}


def enriched_channel(org: LocalOrg) -> str:
    """Create a channel with enriched fields for every entity; return its topic."""
    channel = {"FullName": "Enriched__chn", "Metadata": {"channelType": "data", "label": "Enriched"}}
    org.rest("POST", "/tooling/sobjects/PlatformEventChannel", channel)
    for entity, fields in ENRICHED.items():
        member = {"eventChannel": "Enriched__chn", "selectedEntity": entity}
        enriched = [{"name": name} for name in fields]
        body = {
            "FullName": f"Enriched_{entity}".replace("__", "_"),
            "Metadata": {**member, "enrichedFields": enriched},
        }
        org.rest("POST", "/tooling/sobjects/PlatformEventChannelMember", body)
    return "/data/Enriched__chn"


@pytest.mark.extended
def test_a_replica_from_an_enriched_channel_equals_the_org(spark: Any, tmp_path: Path) -> None:
    """Events have enriched fields that did not change, and events of one change can share a replay ID."""
    job = SessionJob(spark, tmp_path / "replica")
    outcome = run_seed(0, tmp_path, job, topic=enriched_channel, runs=1, steps=60)
    assert not outcome.unexplained, (
        f"differences before the refresh in rows that are not dirty: {summary(outcome.unexplained)}"
    )
    assert not outcome.differences, summary(outcome.differences)
    assert (outcome.dirty_after, outcome.flags_after, outcome.unverified) == (0, [], {})
    assert outcome.dirty > 0
