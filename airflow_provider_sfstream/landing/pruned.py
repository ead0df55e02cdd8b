"""What is kept of windows that were pruned: one small JSON document for each stream.

It is written before anything is removed, so that whoever misses a window can tell that it was removed on purpose, and
so that a removal that was cut off is finished by the next one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.storage import read_if_there, replace_file, storage_errors
from airflow_provider_sfstream.salesforce.streams import Stream

VERSION = 1
FORMAT = "sfstream-pruned"


@dataclass(frozen=True)
class PrunedWindows:
    """The windows of a stream that were pruned.

    :param finished_before: every one of them was finished before this time.
    :param pruned_at: when the last of them were removed.
    :param pruned_by: the task run that did.
    :param windows: how many there were, over all times that something was pruned.
    :param removing: ids of windows whose removal has begun and may not be finished.
    """

    stream: Stream
    finished_before: datetime
    pruned_at: datetime
    pruned_by: str
    windows: int
    removing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"windows finished before {self.finished_before.isoformat()} were pruned, last at "
            f"{self.pruned_at.isoformat()} by {self.pruned_by}"
        )

    def finished(self) -> PrunedWindows:
        """Return the record of when nothing is being removed any more."""
        return replace(self, removing=())

    def to_json(self) -> str:
        """Return the document."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            **vars(self),
            "stream": vars(self.stream),
            "finished_before": self.finished_before.isoformat(),
            "pruned_at": self.pruned_at.isoformat(),
            "removing": list(self.removing),
        }
        return json.dumps(document, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> PrunedWindows:
        """Return the record read from the file ``name``.

        :raises ManifestError: if it is broken, something else, or of a version this package does not know.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document.pop("format") != FORMAT or document.pop("version") != VERSION:
                raise ValueError(f"it is no {FORMAT} of version {VERSION}")
            return cls(
                **{
                    **document,
                    "stream": Stream(**document["stream"]),
                    "finished_before": datetime.fromisoformat(document["finished_before"]),
                    "pruned_at": datetime.fromisoformat(document["pruned_at"]),
                    "removing": tuple(document["removing"]),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ManifestError(
                f"{name} is not a readable record of pruned windows ({type(error).__name__}: {error}). It was changed "
                "after it was written, or a newer version of this package wrote it. No window was touched. Restore or "
                "remove the file; without it, missing windows are no longer known to have been pruned."
            ) from error


def read_pruned(landing: Landing, stream: Stream) -> PrunedWindows | None:
    """Return what was pruned of ``stream``, ``None`` if nothing ever was.

    :raises ManifestError: if the record is broken.
    :raises LandingError: if the storage could not be read.
    """
    path = landing.pruned_path(stream)
    text = read_if_there(landing.filesystem, path)
    return None if text is None else PrunedWindows.from_json(text, path)


def write_pruned(landing: Landing, pruned: PrunedWindows) -> None:
    """Record what was pruned, in the place of the record before.

    :raises LandingError: if it could not be written.
    """
    with storage_errors(f"The record of pruned windows of {pruned.stream} could not be written"):
        replace_file(landing.filesystem, landing.pruned_path(pruned.stream), pruned.to_json().encode())
