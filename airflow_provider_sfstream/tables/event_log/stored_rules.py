"""Field protection rules of stored tables: ``{output}/_sfstream/fields/{table}.json``, one document for a table.

The document is written before the first row under its rules; the quarantine has one too. A job applies the rules of all
tables below its output folder, or fails before it writes anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.runner.engine import JobFiles

FORMAT, VERSION = "sfstream-fields", 1
FOLDER = "_sfstream/fields"
"""Folder of the documents, below the output folder."""


@dataclass(frozen=True)
class StoredRules:
    """Stored field protection rules of the tables below one folder, by table.

    :param folder: folder of the documents; ``None`` if nothing is stored.
    """

    tables: Mapping[str, FieldRules] = field(default_factory=dict)
    files: JobFiles | None = None
    folder: str | None = None

    @classmethod
    def read(cls, files: JobFiles, base: str) -> StoredRules:
        """Return the rules stored below a folder.

        :raises ConfigurationError: if a document cannot be read. Nothing was written.
        """
        folder = f"{base}/{FOLDER}"
        names = [name for name in files.file_names(folder) if name.endswith(".json")]
        documents = {name.removesuffix(".json"): files.read_text(f"{folder}/{name}") for name in names}
        return cls({table: _rules(text, f"{folder}/{table}.json") for table, text in documents.items()}, files, folder)

    def check(self, rules: FieldRules) -> None:
        """Check that a job with these rules applies those of every table.

        :raises ConfigurationError: if it would store a field differently; the error names it. Nothing was written.
        """
        for table, stored in sorted(self.tables.items()):
            rules.check_keep(stored, f"The table {table} ({self.folder}/{table}.json)")

    def rules_of(self, table: str) -> FieldRules:
        """Return the rules of a table."""
        return self.tables.get(table, NO_RULES)

    def keep(self, tables: Iterable[str], rules: FieldRules) -> None:
        """Store the rules that apply to tables from now on."""
        recorded = rules.recorded()
        for table in tables if rules else ():
            if self.files is not None and self.rules_of(table) != recorded:
                document = {"format": FORMAT, "version": VERSION, "table": table, "rules": recorded.to_document()}
                self.files.replace_text(f"{self.folder}/{table}.json", json.dumps(document, indent=1))


def _rules(text: str, url: str) -> FieldRules:
    try:
        document = json.loads(text)
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ValueError(f"unsupported format {document['format']!r}, version {document['version']!r}")
        return FieldRules.of_document(document["rules"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{url} does not contain valid field protection rules ({error}). Nothing was written. Restore the file, or "
            "upgrade airflow-provider-sfstream where the job runs."
        ) from error
