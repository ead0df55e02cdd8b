"""Batches of events on their way from one thread to another, through a file that nobody else can open."""

from __future__ import annotations

import marshal
from collections import deque
from dataclasses import fields
from operator import attrgetter
from tempfile import TemporaryFile

from airflow_provider_sfstream.reading.source import EventBatch

_values = attrgetter(*(each.name for each in fields(EventBatch)))


class Spool:
    """First in, first out. Memory holds where each batch is, a temporary file the rest, whose name is gone already:
    what is in it ends with the process, however that ends. The caller holds a lock.
    """

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 (open for as long as the spool is)
        self._places: deque[tuple[int, int]] = deque()
        self._end = 0
        self.waiting_bytes = 0
        """What was put and not taken."""

    def put(self, batch: EventBatch) -> None:
        """Append ``batch``.

        :raises OSError: if the disk is full. Nothing was appended.
        """
        if not self._places:
            self._end = 0
            self._file.truncate(0)
        data = marshal.dumps(_values(batch))
        self._file.seek(self._end)
        self._file.write(data)
        self._file.flush()
        self._places.append((self._end, len(data)))
        self._end += len(data)
        self.waiting_bytes += len(data)

    def take(self) -> EventBatch | None:
        """Return the batch that was put first; ``None`` if none is left."""
        if not self._places:
            return None
        place, size = self._places.popleft()
        self.waiting_bytes -= size
        self._file.seek(place)
        return EventBatch(*marshal.loads(self._file.read(size)))  # noqa: S302 (nobody else can write there)

    def close(self) -> None:
        """Give up the file, and what is left in it."""
        self._places.clear()
        self.waiting_bytes = 0
        self._file.close()
