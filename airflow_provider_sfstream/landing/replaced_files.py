"""Small files of a landing that are replaced: JSON documents, and the texts of a replay store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from airflow_provider_sfstream.exceptions import LandingError, ReplayStoreError
from airflow_provider_sfstream.landing.documents import document_errors, from_document, to_document
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.storage import read_if_there, replace_file, storage_errors

_T = TypeVar("_T")


@dataclass(frozen=True)
class StoredDocument(Generic[_T]):
    """Kind of small documents, each in one file. Equal contents have equal documents.

    :param type_: the dataclass of its content.
    :param format: name in the document, with ``version``.
    :param noun: name in errors; ``remedy``: see :func:`document_errors`.
    """

    type_: type[_T]
    format: str
    version: int
    noun: str
    remedy: str

    def read(self, filesystem: Any, path: str) -> _T | None:
        """Return the content of a file, ``None`` if it does not exist."""
        text = read_if_there(filesystem, path)
        return None if text is None else self.from_json(text, path)

    def from_json(self, text: str | bytes, name: str) -> _T:
        """Return the content of a document that was read from the file ``name``.

        :raises ManifestError: if it is broken, another document, or of an unsupported version.
        """
        with document_errors(name, self.noun, self.remedy):
            document: dict[str, Any] = json.loads(text)
            if document.pop("format") != self.format or document.pop("version") != self.version:
                raise ValueError(f"expected format {self.format}, version {self.version}")
            return from_document(self.type_, document)

    def to_json(self, content: _T) -> str:
        """Return the document of a content."""
        document = {"format": self.format, "version": self.version, **to_document(content)}
        return json.dumps(document, indent=1, sort_keys=True)

    def write(self, filesystem: Any, path: str, content: _T, what: str) -> None:
        """Write a file, which replaces the existing one. ``what`` is the subject of the error."""
        with storage_errors(f"{what} could not be written"):
            replace_file(filesystem, path, self.to_json(content).encode())


class PositionFiles:
    """Files for :class:`~airflow_provider_sfstream.replay_stores.document.store.DocumentReplayStore`, in place of
    Variables: ``{landing}/positions/{key}.json``. Neither has compare-and-set: one writer per stream.

    For streams whose position Salesforce stores (managed event subscriptions): it accepts one consumer at a time.

    :param landing: the landing of the windows.
    """

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    def name(self, key: str) -> str:
        return f"the file {self._landing.position_url(key)}"

    def get(self, key: str) -> str | None:
        url = self._landing.position_url(key)
        try:
            data = read_if_there(self._landing.filesystem, self._landing.position_path(key), url)
            with storage_errors(f"{url} could not be read"):
                return None if data is None else data.decode()
        except LandingError as error:
            raise ReplayStoreError(str(error)) from error

    def set(self, key: str, value: str, description: str) -> None:
        try:
            with storage_errors(f"{self._landing.position_url(key)} could not be written"):
                replace_file(self._landing.filesystem, self._landing.position_path(key), value.encode())
        except LandingError as error:
            raise ReplayStoreError(str(error)) from error
