"""The text of a replay store as files in the landing: nothing in Airflow, and no database."""

from __future__ import annotations

from airflow_provider_sfstream.exceptions import LandingError, ReplayStoreError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.storage import read_if_there, replace_file, storage_errors


class PositionFiles:
    """What :class:`~airflow_provider_sfstream.replay_stores.document.store.DocumentReplayStore` keeps in Variables by
    default, kept as ``{landing}/positions/{key}.json``. Without compare-and-set, as there: one writer for each stream.

    For streams whose position Salesforce keeps (managed event subscriptions): it lets one consumer in at a time.

    :param landing: the landing that the windows are in.
    """

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    def name(self, key: str) -> str:
        """Return what holds the text of ``key``, for messages."""
        return f"the file {self._landing.position_url(key)}"

    def get(self, key: str) -> str | None:
        """Return the text, ``None`` only if there certainly is no such file.

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
