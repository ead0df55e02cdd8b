from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sfstream_localorg.bus.database import open_database
from sfstream_localorg.bus.event_bus import EventBus
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.bus.topics import TopicRegistry
from sfstream_localorg.cometd.channels import StreamingChannels
from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entities import Entities
from sfstream_localorg.records.sobjects import Operation, SObjects

USER = "005000000000001AAA"


class Bench:
    """In-memory org without a server: records, change events and PushTopics on a real bus."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.25
        self.database: sqlite3.Connection = open_database(Path(":memory:"))
        self.schemas = SchemaRegistry(self.database)
        topics = TopicRegistry(self.database, self.schemas)
        self.topics = topics
        self.bus = EventBus(
            self.database,
            clock=lambda: self.now,
            retention=lambda: 1e9,
            channels_of=lambda name: topics.channels_of(name) if topics.get(name) else (),
        )
        self.entities = Entities(self.database, topics)
        self.channels = StreamingChannels(self.entities)
        self.sobjects = SObjects(
            self.database,
            self.bus,
            self.schemas,
            self.entities,
            clock=lambda: self.now,
            event_bytes=lambda: 10**6,
            watcher=self.channels,
        )

    def write(self, kind: Any, entity: str, record_id: str | None = None, **values: Any) -> str:
        """Execute one operation; return the id of its record."""
        known = self.entities.get(entity)
        assert known is not None
        (result,) = self.sobjects.commit([Operation(kind, known, record_id, values)], user_id=USER, origin="")
        if isinstance(result, ApiError):
            raise result
        return result

    def push_topic(self, name: str, query: str, **fields: Any) -> str:
        """Create a PushTopic; return its channel."""
        self.write("CREATE", "PushTopic", Name=name, Query=query, ApiVersion=62, **fields)
        return f"/topic/{name}"


@pytest.fixture(scope="session")
def make_bench() -> Callable[[], Bench]:
    return Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
