"""The files of a refresh, on the worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.landing.storage import make_folder, storage_errors
from airflow_provider_sfstream.tables.replica.refresh_document import FILE_NAME, FOLDER

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument

LINES_PER_FILE = 500_000
_REMEDY = "Check output_url, and the storage connection output_conn_id"


class RefreshFiles:
    """The folder of one refresh, and the lists of dirty rows beside it.

    :param output_url: folder of the replica.
    :param open_path: gives the ``ObjectStoragePath`` of a URL below it.
    :param lines_per_file: records of one file.
    """

    def __init__(
        self, output_url: str, open_path: Callable[[str], Any], refresh_id: str, *, lines_per_file: int = LINES_PER_FILE
    ) -> None:
        self._output = output_url.rstrip("/")
        self._path = open_path
        self._lines_per_file = lines_per_file
        self._folder = f"{self._output}/{FOLDER}/{refresh_id}"
        self.refresh_id = refresh_id
        self.url = f"{self._folder}/{FILE_NAME}"

    def clean(self) -> None:
        """Remove this refresh's folder, and those that killed tasks left: one refresh at a time writes here."""
        with storage_errors(f"The folder {self._output}/{FOLDER} cannot be cleaned", _REMEDY):
            folder = self._path(f"{self._output}/{FOLDER}")
            if folder.exists():
                folder.rmdir(recursive=True)

    def write(self, table: str, lines: Iterable[str]) -> list[str]:
        """Write lines as they come; return the names of the files.

        :raises LandingError: if the storage fails.
        """
        names: list[str] = []
        remaining = iter(lines)
        first = next(remaining, None)
        while first is not None:
            names.append(f"{table}/part-{len(names):05d}.jsonl")
            first = self._write_file(names[-1], first, remaining)
        return names

    def publish(self, document: RefreshDocument) -> None:
        """Write the document, after all files that it names."""
        with storage_errors(f"{self.url} cannot be written", _REMEDY):
            path = self._path(self.url)
            make_folder(path.fs, path.parent.path)
            path.write_text(document.to_json())

    def dirty_rows(self, dirty_list: str | None) -> Iterator[tuple[str, int]]:
        """Yield the id and the sequence of each dirty row of a table.

        :param dirty_list: as the snapshot names it.
        :raises LandingError: if the list is not there, or broken.
        """
        where = f"{self._output}/{dirty_list}"
        with storage_errors(f"The list of dirty rows {where} cannot be read", _REMEDY):
            files = sorted((p for p in self._path(where).iterdir() if p.name.endswith(".json")), key=str)
        for path in files:
            # The filesystem's own file: the lines of one that ObjectStoragePath opens cannot be had in Airflow 3.1.1.
            with (
                storage_errors(f"The list of dirty rows {where} cannot be read", _REMEDY),
                path.fs.open(path.path, "r") as file,
            ):
                lines = (json.loads(line) for line in file)
                yield from ((str(row["Id"]), int(row["sequence"])) for row in lines)

    def _write_file(self, name: str, first: str, lines: Iterator[str]) -> str | None:
        """Write one file; return the first line of the next one."""
        path = self._path(f"{self._folder}/{name}")
        with storage_errors(f"{path} cannot be written", _REMEDY):
            make_folder(path.fs, path.parent.path)
            with path.open("w", encoding="ascii") as file:
                file.write(first)
                for written, line in enumerate(lines, 1):
                    if written == self._lines_per_file:
                        return line
                    file.write(line)
        return None
