"""Files of a landing as the source's own processes read them: with fsspec, on the driver and on executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import fsspec

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError, SalesforceStreamError
from airflow_provider_sfstream.redaction import remember_secrets
from airflow_provider_sfstream.tables.runner.embedded import copy_part


class SourceFiles:
    """Reader for manifests, schemas and parts.

    :param storage: options of fsspec's filesystem.
    """

    def __init__(self, storage: Mapping[str, Any]) -> None:
        remember_secrets(*(str(value) for value in storage.values()))
        self._storage = dict(storage)
        self._texts: dict[str, str] = {}

    def url(self, url: str) -> str:
        return url

    def read_text(self, url: str) -> str:
        """Return the text of a file, which is read only once: these files never change.

        :raises FileNotFoundError: if the file does not exist.
        :raises LandingError: if the storage cannot be read.
        """
        if url not in self._texts:
            with _readable(url):
                filesystem, path = fsspec.core.url_to_fs(url, **self._storage)
                self._texts[url] = filesystem.cat_file(path).decode()
        return self._texts[url]

    @contextmanager
    def part(self, url: str, sha256: str | None) -> Iterator[BinaryIO]:
        """Yield a local copy of a part file, compared with its SHA-256 if that is not ``None``."""
        with TemporaryFile() as copy:
            try:
                with _readable(url):
                    filesystem, path = fsspec.core.url_to_fs(url, **self._storage)
                    with filesystem.open(path, "rb") as source:
                        copy_part(source, copy, url, sha256)
            except FileNotFoundError:
                raise ConfigurationError(
                    f"Files of windows are missing: {url}. Restore it, or drain the interval again while Salesforce "
                    "retains its events (72 hours)."
                ) from None
            copy.seek(0)
            yield copy


@contextmanager
def _readable(url: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, SalesforceStreamError):
        raise
    except Exception as error:  # each filesystem has its own errors
        raise LandingError(
            f"{url} cannot be read ({type(error).__name__}: {error}). No event is lost. Check the storage and the "
            "options storage.NAME, then run the query again."
        ) from error
