"""Replica whose landing is pruned between runs, compared with a replica of an unpruned landing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.actions.stream_maintenance import WindowConsumers
from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.table import TableReplayStore
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.pruning import PruneOutcome, prune_stream
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.change_lake import TOPIC, ChangeLake, change

IDS = [f"a0W00000000000{number}AAA" for number in range(1, 10)]
STREAM = Stream("00D000000000001EAA", "pubsub", TOPIC)


class PrunedLake(ChangeLake):
    """Lake whose windows are recorded in a replay table, so that they can be pruned."""

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(spark, folder)
        folder.mkdir(exist_ok=True)
        self.store = TableReplayStore(f"sqlite:///{folder}/positions.db")
        self.catalog = LandingCatalog(Landing.from_url(str(self.landing)))

    def land(self, *events: Any, **window: Any) -> str:
        url = super().land(*events, **window)
        manifest = self.catalog.read_manifest_url(url)
        position = self.store.read(STREAM)
        # Handmade windows all finish at the same time, so space their finish times by one minute.
        finished = replace(manifest, finished_at=manifest.finished_at + timedelta(minutes=position.fence))
        Path(url.removeprefix("file://")).write_text(finished.to_json())
        self.store.advance(STREAM, position, manifest.window)
        return url

    def prune(self) -> PruneOutcome:
        readers = WindowConsumers.for_stream(STREAM, [self.output], [], None)
        return prune_stream(
            LandedStream(STREAM, self.catalog, self.store),
            timedelta(days=30),
            needed=readers.needed,
            still_needed=readers.still_needed,
            pruned_by="me",
        )


def test_a_replica_with_a_pruned_landing_equals_one_with_an_unpruned_landing(spark: Any, tmp_path: Path) -> None:
    plain, pruned = ChangeLake(spark, tmp_path / "plain"), PrunedLake(spark, tmp_path / "pruned")
    assert pruned.prune().removed == ()
    batches = [
        # The end of the second window splits the transaction t1.
        [change(1, "CREATE", [IDS[0]], "t0", Name="one")],
        [change(2, "CREATE", [IDS[1]], "t1", Name="two")],
        [change(3, "CREATE", [IDS[2]], "t1", Name="three"), change(4, "UPDATE", [IDS[0]], "t2", Name="uno")],
        [change(5, "DELETE", [IDS[1]], "t3")],
    ]
    stops = ["caught_up", "max_events", "caught_up", "caught_up"]
    gone, urls = [], []
    for events, stop_reason in zip(batches, stops, strict=True):
        given = plain.land(*events, stop_reason=stop_reason)
        urls.append(pruned.land(*events, stop_reason=stop_reason))
        if len(urls) != 3:  # the third run failed
            plain.run(given)
            pruned.run(urls[-1])
        gone.append([old.window.window_id[-7:] for old in pruned.prune().removed])

    # The second window was held back, and the fourth run applied the third window.
    assert gone == [[], ["window0"], [], ["window1", "window2"]]
    assert pruned.rows() == plain.rows()
    assert pruned.snapshot().streams.keys() == plain.snapshot().streams.keys()
    assert pruned.run(urls[3]).windows == []
    with pytest.raises(ManifestError):
        pruned.run(urls[0])
    pruned.store.close()
