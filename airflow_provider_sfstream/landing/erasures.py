"""The audit record of an erasure: one JSON document below the landing, written before anything is erased.

It has no id. It has an HMAC-SHA-256 of each, keyed with random bytes that stand in it too: by it one can show that a
given id was erased. Whoever has the record can also try ids until one fits, so it is to be kept as what it is about.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.storage import replace_file, storage_errors
from airflow_provider_sfstream.salesforce.streams import RunIdentity, window_id_for

FORMAT, VERSION = "sfstream-erasure", 1


@dataclass(frozen=True)
class Erasure:
    """What a task run was asked to erase, and what its last try did.

    :param erasure_id: the same for all tries of the run; manifests name it.
    :param hashes: of the ids, as hex: HMAC-SHA-256 of the 18 characters, keyed with ``salt`` (hex).
    :param finished_at: ``None`` until a try has erased all that it was to.
    :param result: counts, as the operator returns them.
    """

    erasure_id: str
    entity: str
    erased_by: str
    began_at: datetime
    salt: str
    hashes: tuple[str, ...]
    finished_at: datetime | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, landing: Landing, run: RunIdentity, entity: str, ids: Iterable[str], now: datetime) -> Erasure:
        """Announce an erasure, or go on with the one that an earlier try of the run announced.

        :param ids: of 18 characters.
        :raises ManifestError: if there is a record that cannot be read.
        :raises LandingError: if it could not be written. Nothing was erased.
        """
        erasure_id = window_id_for(run, "live", b"erasure")
        path = landing.erasure_path(erasure_id)
        with storage_errors(f"{path} could not be read", "Check the storage connection"):
            text = landing.filesystem.cat_file(path) if landing.filesystem.exists(path) else None
        earlier = None if text is None else cls.from_json(text, path)
        salt = secrets.token_hex(32) if earlier is None else earlier.salt
        hashes = {hmac.new(bytes.fromhex(salt), each.encode(), hashlib.sha256).hexdigest() for each in ids}
        announced = cls(
            erasure_id=erasure_id,
            entity=entity,
            erased_by=str(run),
            began_at=now if earlier is None else earlier.began_at,
            salt=salt,
            hashes=tuple(sorted(hashes.union(() if earlier is None else earlier.hashes))),
        )
        announced.write(landing)
        return announced

    def finish(self, landing: Landing, result: dict[str, Any], now: datetime) -> None:
        """Record that all is erased.

        :raises LandingError: if it could not be written. The next try finds nothing left to erase, and writes it.
        """
        replace(self, finished_at=now, result=result).write(landing)

    def write(self, landing: Landing) -> None:
        """Write the document in the place of the one before."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            **vars(self),
            "began_at": self.began_at.isoformat(),
            "finished_at": None if self.finished_at is None else self.finished_at.isoformat(),
        }
        with storage_errors("The record of an erasure could not be written"):
            text = json.dumps(document, indent=1, sort_keys=True)
            replace_file(landing.filesystem, landing.erasure_path(self.erasure_id), text.encode())

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> Erasure:
        """Return the record read from the file ``name``.

        :raises ManifestError: if it is broken, something else, or of a version this package does not know.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document.pop("format") != FORMAT or document.pop("version") != VERSION:
                raise ValueError(f"it is no {FORMAT} of version {VERSION}")
            ended = document["finished_at"]
            return cls(
                **{
                    **document,
                    "began_at": datetime.fromisoformat(document["began_at"]),
                    "finished_at": None if ended is None else datetime.fromisoformat(ended),
                    "hashes": tuple(document["hashes"]),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ManifestError(
                f"{name} is not a readable record of an erasure ({type(error).__name__}: {error}). It was changed "
                "after it was written. Nothing was erased. Move the file away, keep it, and run the task again."
            ) from error
