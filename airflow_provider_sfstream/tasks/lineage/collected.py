"""Lineage for Airflow's own collector, which plugins of other catalogues read, not only that of OpenLineage."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from airflow_provider_sfstream._airflow import hook_lineage_collector
from airflow_provider_sfstream.protocol.dataset_names import stream_folder
from airflow_provider_sfstream.protocol.stream_uris import StreamUri

log = logging.getLogger(__name__)


def collect_lineage(hook: Any, landed: StreamUri, manifests: Sequence[str]) -> None:
    """Tell Airflow's collector, if anybody reads it, of the topic that was read and the folder that was written.

    What goes wrong is logged, never raised.

    :param hook: that read the topic.
    :param manifests: URLs of the manifests of what was landed; without one, nothing was written.
    """
    topic = StreamUri(landed.salesforce_conn_id, landed.topic, api=landed.api)
    try:
        collector = hook_lineage_collector()
        collector.add_input_asset(context=hook, uri=str(topic))
        for folder in sorted(set(map(stream_folder, manifests))):
            collector.add_output_asset(context=hook, uri=folder)
    except Exception as error:  # the window is landed
        log.info("The lineage of this drain cannot be collected: %s", type(error).__name__)
