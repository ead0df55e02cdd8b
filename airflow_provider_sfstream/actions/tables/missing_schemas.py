"""Fetch the schemas that were not available when windows landed, into the landing's folder of schemas."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError, SalesforceStreamError, SchemaError
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Api

log = logging.getLogger(__name__)


class _Missing(NamedTuple):
    """A schema that is in no file yet, and the URL of that file."""

    stream: Stream
    schema_id: str
    url: str


def fetch_missing_schemas(
    manifest_urls: Iterable[str], *, salesforce_conn_id: str, landing_conn_id: str | None
) -> list[str]:
    """Fetch the missing schemas of the manifests, unless they exist by now; log and return their ids.

    Salesforce is called only for a missing schema. A refused schema is skipped with a warning. Safe to repeat.

    :raises ConfigurationError: if the windows are of another org than the connection. Nothing was fetched.
    """
    missing = {each.url: each for url in manifest_urls for each in _missing(url, landing_conn_id)}
    by_api: dict[Api, list[_Missing]] = {}
    for each in missing.values():
        by_api.setdefault(each.stream.api, []).append(each)
    fetched: list[str] = []
    for api, of_api in by_api.items():
        hook = event_hook(api, salesforce_conn_id)
        for stream in {each.stream for each in of_api}:
            if stream.org_id != hook.known_org_id:
                raise ConfigurationError(
                    f"The schemas of the windows of {stream} are not in org {hook.known_org_id}, to which "
                    f"salesforce_conn_id={salesforce_conn_id!r} connects. Set the connection of their drain."
                )
        with hook.get_conn() as client:
            fetched += [each.schema_id for each in of_api if _fetch(each, client, landing_conn_id)]
    log.info("Schemas fetched into the landing: %s", ", ".join(fetched) or "none")
    return fetched


def _missing(manifest_url: str, landing_conn_id: str | None) -> Iterator[_Missing]:
    """Yield the schemas of one manifest that are still missing."""
    from airflow_provider_sfstream.landing.location import Landing
    from airflow_provider_sfstream.landing.manifest import Manifest
    from airflow_provider_sfstream.landing.storage import storage_errors

    with storage_errors(f"{manifest_url} could not be read", "Check the landing and landing_conn_id"):
        try:
            text = storage_path(manifest_url, landing_conn_id).read_bytes()
        except FileNotFoundError:
            raise ManifestError(f"{manifest_url} does not exist. Set the result of the drain.") from None
        manifest = Manifest.from_json(text, manifest_url)
        for schema_id, each in manifest.missing_schemas.items():
            if each.file is None:
                log.warning("%s: %s, so no schema can be fetched for these events.", manifest_url, each.reason)
                continue
            url = manifest.url_of(Landing.schema_reference(schema_id))
            if not storage_path(url, landing_conn_id).exists():
                yield _Missing(manifest.stream, schema_id, url)


def _fetch(missing: _Missing, client: Any, landing_conn_id: str | None) -> bool:
    """Fetch one schema and write its file; return whether Salesforce gave it."""
    from airflow_provider_sfstream.landing.storage import storage_errors, write_once
    from airflow_provider_sfstream.salesforce.schemas import parse

    try:
        schema = client.schema(missing.schema_id)
        if schema is None:
            raise SchemaError("Salesforce did not return it.")
        parse(schema)
    except SalesforceStreamError as error:
        if error.retriable:
            raise
        log.warning("%s: schema %r cannot be fetched: %s", missing.stream, missing.schema_id, error)
        return False
    path = storage_path(missing.url, landing_conn_id)
    with storage_errors(f"{missing.url} could not be written", "Check the landing and landing_conn_id"):
        write_once(path.fs, path.path, schema.encode())
    return True
