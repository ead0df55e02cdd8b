"""Tables below one folder, one for each event type, and the quarantine: their names and field protection rules.

The rules of a table are stored in ``{output}/_sfstream/fields/{table}.json``, before the first row under its rules is
written; the quarantine has a document too. A job applies the rules of all tables below its output folder, or fails
before it writes anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.runner.engine import JobFiles

TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
Dates = tuple[date, date] | None
"""First and last relevant event date; ``None``: any."""
KEYS = pa.schema(
    [("_org_id", pa.string()), ("_topic", pa.string()), ("_replay_id", pa.binary()), ("window_id", pa.string())]
)
"""Columns that identify the event and the partition of a table's row."""
PARTITION_BY = ("event_date",)
"""Columns of event tables that are stored as folders."""
_FORMAT, _VERSION = "sfstream-fields", 1


def check_table_name(name: str) -> str:
    """Return the record name of a schema if it is a valid folder name.

    :raises ValueError: if it is not.
    """
    if not TABLE_NAME.fullmatch(name):
        raise ValueError(f"the record name {name[:80]!r} is not a valid table name")
    return name


def find_tables(files: JobFiles, base: str) -> list[str]:
    """Return the names of the event tables below a folder."""
    return [name for name in files.folders(base) if TABLE_NAME.fullmatch(name) and _has_events(files, f"{base}/{name}")]


def _has_events(files: JobFiles, table: str) -> bool:
    """Return whether a folder is a Delta table by event date, unlike a replica's tables."""
    folders = files.folders(table)
    return "_delta_log" in folders and any(folder.startswith("event_date=") for folder in folders)


class StoredRules:
    """Field protection rules by table, as stored when it is created.

    :param base: folder of the tables.
    """

    def __init__(self, files: JobFiles, base: str) -> None:
        self._files, self._folder = files, f"{base}/_sfstream/fields"
        urls = {name: f"{self._folder}/{name}" for name in files.file_names(self._folder) if name.endswith(".json")}
        self._tables = {name.removesuffix(".json"): _rules(files, url) for name, url in urls.items()}

    def check(self, rules: FieldRules) -> None:
        """Check that a job with these rules applies those of every table."""
        for table, stored in sorted(self._tables.items()):
            rules.check_keep(stored, f"The table {table} ({self._folder}/{table}.json)")

    def rules_of(self, table: str) -> FieldRules:
        """Return the rules of a table."""
        return self._tables.get(table, NO_RULES)

    def keep(self, tables: Iterable[str], rules: FieldRules) -> None:
        """Store the rules that apply to tables from now on."""
        recorded = rules.recorded()
        for table in tables if rules else ():
            if self.rules_of(table) != recorded:
                document = {"format": _FORMAT, "version": _VERSION, "table": table, "rules": to_document(recorded)}
                self._files.replace_text(f"{self._folder}/{table}.json", json.dumps(document, indent=1))


def _rules(files: JobFiles, url: str) -> FieldRules:
    text = files.read_text(url)
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ValueError(f"unsupported format {document['format']!r}, version {document['version']!r}")
        return from_document(FieldRules, document["rules"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{url} does not contain valid field protection rules ({error}). Nothing was written. Restore the file, or "
            "upgrade airflow-provider-sfstream where the job runs."
        ) from error
