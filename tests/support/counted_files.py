"""A filesystem in memory that counts reads, and can refuse writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem


class CountedFiles(MemoryFileSystem):
    """Filesystem in memory whose instances share no files.

    ``documents`` counts reads and existence checks by path, ``listings`` counts folder listings.
    """

    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.documents: Counter[str] = Counter()
        self.listings: Counter[str] = Counter()
        self.read_only = False

    def cat_file(self, path: str, *arguments: Any, **options: Any) -> bytes:
        self.documents[path] += 1
        data: bytes = super().cat_file(path, *arguments, **options)
        return data

    def exists(self, path: str, **options: Any) -> bool:
        self.documents[path] += 1
        return bool(super().exists(path, **options))

    def ls(self, path: str, *arguments: Any, **options: Any) -> Any:
        self.listings[path] += 1
        return super().ls(path, *arguments, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if self.read_only:
            raise PermissionError(path)
        if mode == "create" and path in self.store:
            raise FileExistsError(path)
        super().pipe_file(path, value, **options)

    def counted(self) -> tuple[int, int]:
        """Return the numbers of document reads and of listings since the last call."""
        counted = self.documents.total(), self.listings.total()
        self.documents.clear()
        self.listings.clear()
        return counted
