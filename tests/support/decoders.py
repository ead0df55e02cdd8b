"""Selection of one of the two Avro libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_sfstream.tables.decode import avro_decoding
from airflow_provider_sfstream.tables.rows import change_batches, event_batches

LIBRARIES = ("pyruhvro", "fastavro")
_CACHED = (event_batches._decoder, change_batches._decoder, change_batches._key_decoder)


@contextmanager
def decoding_with(library: str) -> Iterator[None]:
    """Decode with one of :data:`LIBRARIES` in a ``with`` block. For fastavro, simulate a missing pyruhvro."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if library == "fastavro":
            monkeypatch.setattr(avro_decoding, "_import_pyruhvro", lambda: None)
        for cached in _CACHED:
            cached.cache_clear()
        try:
            yield
        finally:
            for cached in _CACHED:
                cached.cache_clear()
