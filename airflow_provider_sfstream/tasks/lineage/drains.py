"""The lineage of a drain: a topic in, the stream as it is landed out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.protocol.dataset_names import name_of_landed, name_of_stream
from airflow_provider_sfstream.protocol.stream_uris import StreamUri
from airflow_provider_sfstream.tasks.lineage.told import Column, Lineage, Told, types_text

if TYPE_CHECKING:
    from airflow_provider_sfstream.protocol.manifest import Manifest

READ_SECONDS = 5.0
"""For all that is read to tell of it: the listener ends the telling after ten seconds, by default."""
_MOST_WINDOWS = 100
"""Told one by one: an event of OpenLineage is a single document."""
_FACTS = (
    *("window_id", "kind", "after", "through", "event_count", "payload_bytes", "first_event_time", "last_event_time"),
    *("covered_from", "covered_until", "stop_reason", "gap"),
)
"""What is told of each, as its manifest has it."""


@dataclass(frozen=True)
class DrainedWindows:
    """What a drain gave.

    :param given: the manifests of its windows.
    :param own: of those among them that it landed itself.
    """

    given: tuple[Manifest, ...]
    own: tuple[Manifest, ...]


def drain_lineage(
    landed: StreamUri, drained: DrainedWindows | None, fields: Mapping[str, Any], *, has_ended: bool
) -> Lineage:
    """Return the lineage of a drain; ``drained`` is ``None`` before it, and where it failed before it had a window.

    The landed stream has the columns of the landing, and the fields of the event, which lie in its payload unchanged.
    A drain that ended without a window has not written to it, so it is no output then.

    :param fields: column type of each field of the events, as far as it is known.
    """
    source = name_of_stream(StreamUri(landed.salesforce_conn_id, landed.topic, api=landed.api))
    target = name_of_stream(landed)
    if drained is None:
        return Lineage([Told(source)], [] if has_ended else [Told(target)])
    from airflow_provider_sfstream.landing.columns import SCHEMA

    own, types = drained.own, types_text(fields)
    files = [file for manifest in own for file in manifest.files]
    rows = sum(manifest.window.event_count for manifest in own)
    return Lineage(
        [Told(source, types, rows=rows, size=sum(manifest.payload_bytes for manifest in own))],
        [
            Told(
                target,
                {**{field.name: str(field.type) for field in SCHEMA}, **types},
                {name: [Column(source, name)] for name in types},
                rows=rows,
                size=sum(file.bytes for file in files),
                files=len(files),
                version=own[-1].window.window_id if own else None,
                also=next((name_of_landed(each.window.manifest_url) for each in drained.given), None),
            )
        ],
        [_facts(manifest) for manifest in drained.given[:_MOST_WINDOWS]],
    )


def event_fields(manifests: Iterable[Manifest], read_text: Callable[[str], str]) -> dict[str, Any]:
    """Return the fields of the events of windows, of all their schemas together; none where they are of several types,
    or describe themselves.

    :param read_text: reads the file at a URL.
    """
    from airflow_provider_sfstream.protocol.schemas import parse
    from airflow_provider_sfstream.spark.decode.avro_columns import members_of

    until = time.monotonic() + READ_SECONDS
    urls = {schema_id: each.url_of(name) for each in manifests for schema_id, name in each.schemas.items()}
    types: set[str] = set()
    fields: dict[str, Any] = {}
    for url in urls.values():
        if time.monotonic() > until:
            return {}  # a part would look like the whole
        schema = parse(read_text(url))
        types.add(str(schema["name"]))
        fields.update((member.name, member.value.type) for member in members_of(schema))
    return fields if len(types) == 1 else {}


def _facts(manifest: Manifest) -> dict[str, Any]:
    document = json.loads(manifest.to_json())
    return {"manifest_url": manifest.window.manifest_url, **{name: document[name] for name in _FACTS}}
