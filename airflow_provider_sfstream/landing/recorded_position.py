"""Positions in the landing: the last one that a replay store recorded, and files that hold the text of a replay store.

``recorded.json``, in the folder of its stream, is replaced after each advance: data files, manifest, position,
``recorded.json``. It is therefore never ahead of the position that it was written for, and a store whose position
precedes it was restored from a backup, or is another store. One small document for each stream; the storage replaces it
atomically.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.exceptions import LandingError, ManifestError, ReplayStoreError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.storage import read_if_there, replace_file, storage_errors
from airflow_provider_sfstream.salesforce.streams import Stream

VERSION = 1
FORMAT = "sfstream-recorded-position"


@dataclass(frozen=True)
class RecordedPosition:
    """A position of a stream that a replay store had at ``recorded_at``.

    :param window_id: the live window of the position; ``None`` if the position had been set by hand.
    :param fence: the fence of the position.
    :param replay_id: the replay ID of the position.
    :param recorded_at: time when the position was moved to it, by the clock of the worker.
    """

    stream: Stream
    window_id: str | None
    fence: int
    replay_id: bytes | None
    recorded_at: datetime

    def to_json(self) -> str:
        """Return the document."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "stream": vars(self.stream),
            "window_id": self.window_id,
            "fence": self.fence,
            "replay_id": None if self.replay_id is None else self.replay_id.hex(),
            "recorded_at": self.recorded_at.isoformat(),
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> RecordedPosition:
        """Return the position read from the file ``name``.

        :raises ManifestError: if it is broken, another document, or of an unsupported version.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document.pop("format") != FORMAT or document.pop("version") != VERSION:
                raise ValueError(f"expected format {FORMAT}, version {VERSION}")
            replay_id, recorded_at = document["replay_id"], datetime.fromisoformat(document["recorded_at"])
            if type(document["fence"]) is not int or recorded_at.tzinfo is None:
                raise ValueError("the fence is not an integer, or the time has no time zone")
            return cls(
                **{
                    **document,
                    "stream": Stream(**document["stream"]),
                    "replay_id": None if replay_id is None else bytes.fromhex(replay_id),
                    "recorded_at": recorded_at,
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ManifestError(
                f"{name} is not a readable record of a position ({type(error).__name__}: {error}). It was changed "
                "after it was written, or a newer version of this package wrote it. The replay store was not changed. "
                "Restore or remove the file; without it, a store that was restored from a backup is not detected."
            ) from error


def read_recorded(landing: Landing, stream: Stream) -> RecordedPosition | None:
    """Return the last recorded position of ``stream``, ``None`` if the landing has none.

    :raises ManifestError: if the document is broken.
    :raises LandingError: if the storage could not be read.
    """
    path = landing.recorded_path(stream)
    text = read_if_there(landing.filesystem, path)
    if text is None:
        return None
    recorded = RecordedPosition.from_json(text, path)
    if recorded.stream != stream:
        raise ManifestError(
            f"{path} belongs to another stream, {recorded.stream}. It was copied or moved. The replay store was not "
            "changed. Remove the file."
        )
    return recorded


def write_recorded(landing: Landing, recorded: RecordedPosition) -> None:
    """Store ``recorded``, which replaces the position before.

    :raises LandingError: if it could not be written.
    """
    with storage_errors(f"The last recorded position of {recorded.stream} could not be written"):
        replace_file(landing.filesystem, landing.recorded_path(recorded.stream), recorded.to_json().encode())


class PositionFiles:
    """Files for :class:`~airflow_provider_sfstream.replay_stores.document.store.DocumentReplayStore`, in place of
    Variables (the default): ``{landing}/positions/{key}.json``. Neither has compare-and-set: one writer per stream.

    For streams whose position Salesforce stores (managed event subscriptions): it accepts one consumer at a time.

    :param landing: the landing of the windows.
    """

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    def name(self, key: str) -> str:
        """Return the name of the file with the text of ``key``, for messages."""
        return f"the file {self._landing.position_url(key)}"

    def get(self, key: str) -> str | None:
        """Return the text; ``None`` only if the file certainly does not exist.

        :raises ReplayStoreError: if the storage cannot be read.
        """
        url = self._landing.position_url(key)
        try:
            data = read_if_there(self._landing.filesystem, self._landing.position_path(key), url)
            with storage_errors(f"{url} could not be read"):
                return None if data is None else data.decode()
        except LandingError as error:
            raise ReplayStoreError(str(error)) from error

    def set(self, key: str, value: str, description: str) -> None:
        """Create or replace the file.

        :raises ReplayStoreError: if it cannot be written.
        """
        try:
            with storage_errors(f"{self._landing.position_url(key)} could not be written"):
                replace_file(self._landing.filesystem, self._landing.position_path(key), value.encode())
        except LandingError as error:
            raise ReplayStoreError(str(error)) from error
