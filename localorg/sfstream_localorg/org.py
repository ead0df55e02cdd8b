"""The local org: state shared by its interfaces."""

from __future__ import annotations

import fcntl
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sfstream_localorg import identity, tls
from sfstream_localorg.admin.knobs import Knobs
from sfstream_localorg.bus.allocations import Allocation
from sfstream_localorg.bus.database import open_database
from sfstream_localorg.bus.event_bus import BusEvent, EventBus
from sfstream_localorg.bus.payloads import encode
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.bus.topics import TopicDefinition, TopicRegistry
from sfstream_localorg.channels.delivery import ChannelDelivery
from sfstream_localorg.channels.records import ChannelRecords
from sfstream_localorg.cometd.channels import PUSH_TOPIC, STREAMING_CHANNEL, StreamingChannels
from sfstream_localorg.cometd.payloads import EventData
from sfstream_localorg.cometd.sessions import CometdSessions
from sfstream_localorg.errors import ApiError
from sfstream_localorg.login.sessions import Sessions
from sfstream_localorg.managed.slots import Slots
from sfstream_localorg.managed.subscriptions import ManagedSubscriptions
from sfstream_localorg.records.computed_fields import ComputedField
from sfstream_localorg.records.entities import Entities
from sfstream_localorg.records.fields import Field
from sfstream_localorg.records.sobjects import Operation, SObjects
from sfstream_localorg.request_log import RequestLog
from sfstream_localorg.streams.faults import Faults

if TYPE_CHECKING:
    import asyncio

    from sfstream_localorg.streams.endings import CallEnded


API_REQUESTS = 15_000
"""Limit of REST calls in 24 hours for a Developer Edition."""


class DataDirectoryInUseError(Exception):
    """Another local org uses this data directory."""


class OpenStream(Protocol):
    """An open stream of the Pub/Sub API, with its topic and the number of delivered events."""

    topic: str
    delivered: int
    wake: asyncio.Event

    def end(self, ending: CallEnded) -> None:
        """End the stream, from another task."""
        ...


class Org:
    """An org, its data directory, and the components that HTTP, gRPC and ``/admin`` use.

    URLs are empty until the servers listen (:meth:`listening`).

    :param host_name: an additional name in its certificate, besides the names of this machine.
    :raises DataDirectoryInUseError: if another process has the directory open.
    """

    def __init__(self, data_dir: Path, host_name: str | None = None) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self._lock = (data_dir / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise DataDirectoryInUseError(f"another local org is running on {data_dir}") from error
        self.identity = identity.load_or_create(data_dir)
        self.created_at = identity.created_at(data_dir)
        self.tls = tls.ensure_tls_files(data_dir, host_name)
        self.jwt_private_key_file = tls.ensure_jwt_keys(data_dir)
        self.knobs = Knobs()
        self.faults = Faults()
        self.request_log = RequestLog()
        self._database = open_database(data_dir / "org.sqlite3")
        self.schemas = SchemaRegistry(self._database)
        self.topics = TopicRegistry(self._database, self.schemas)
        self.bus = EventBus(
            self._database,
            clock=self.now,
            retention=lambda: self.knobs.retention_seconds,
            channels_of=self._channels_of,
            streaming_retention=lambda: self.knobs.streaming_retention_seconds,
            standard_retention=lambda: self.knobs.standard_volume_retention_seconds,
            is_standard_volume=self.topics.is_standard_volume,
        )
        entities = Entities(self._database, self.topics)
        self.streaming_channels = StreamingChannels(entities)
        self.sobjects = SObjects(
            self._database,
            self.bus,
            self.schemas,
            entities,
            clock=self.now,
            event_bytes=lambda: self.knobs.event_bytes,
            overflow_changes=lambda: self.knobs.overflow_changes,
            diff_text_characters=lambda: self.knobs.diff_text_characters,
            watcher=self.streaming_channels,
        )
        for entity in entities:
            if not entity.has_change_events:
                self.streaming_channels.written(self.sobjects.all(entity))
        self.channels = ChannelRecords(self.topics, entities.of_topic)
        self.channel_delivery = ChannelDelivery(self.topics, self.schemas, entities.of_topic, self.sobjects.content)
        self.sessions = Sessions(data_dir / "sessions.sqlite3", self.org_id)
        self.deliveries = Allocation(24 * 3600, lambda: self.knobs.delivery_quota, time.monotonic)
        self.monthly_deliveries = Allocation(30 * 24 * 3600, lambda: None, time.monotonic)
        self.streaming_deliveries = {
            prefix: Allocation(24 * 3600, lambda: None, time.monotonic) for prefix in ("/topic/", "/u/")
        }
        self.publications = Allocation(3600, lambda: self.knobs.publish_quota, time.monotonic)
        self.api_requests = Allocation(24 * 3600, lambda: API_REQUESTS, time.monotonic)
        """Count of calls to the REST API. The org does not enforce the limit."""
        self.subscriptions: set[OpenStream] = set()
        self.managed = ManagedSubscriptions(
            self._database,
            visibility=lambda: self.knobs.managed_visibility_seconds,
            clock=time.time,
            slots=Slots(
                release_seconds=lambda: self.knobs.managed_release_seconds,
                half_open_seconds=lambda: self.knobs.managed_half_open_seconds,
                clock=time.monotonic,
            ),
        )
        self.cometd = CometdSessions(lambda: self.knobs.cometd_reconnect_seconds)
        self.event_data = EventData(self.schemas)
        self.instance_url = ""
        self.https_instance_url = ""

    def delivered(self, events: int) -> None:
        """Count delivered events."""
        self.deliveries.use(events)
        self.monthly_deliveries.use(events)

    @property
    def org_id(self) -> str:
        """Org ID: 18 characters, ``00D...``."""
        return self.identity.org_id

    @property
    def login_url(self) -> str:
        """Login URL: the instance itself, as with a My Domain host."""
        return self.instance_url

    @property
    def client_id(self) -> str:
        """The consumer key of the external client app."""
        return self.identity.client_id

    @property
    def client_secret(self) -> str:
        """The consumer secret of the external client app."""
        return self.identity.client_secret

    @property
    def username(self) -> str:
        """Name of the only user."""
        return self.identity.username

    @property
    def password(self) -> str:
        """The user's password."""
        return self.identity.password

    @property
    def security_token(self) -> str:
        """Security token, which API logins append to the password."""
        return self.identity.security_token

    @cached_property
    def user_id(self) -> str:
        """Id of the only user: 18 characters, ``005...``."""
        return self.sessions.user_id(self.username)

    def now(self) -> float:
        """Return the time on the bus's clock, seconds since the epoch."""
        return time.time() + self.knobs.clock_offset_seconds

    def listening(self, instance_url: str, https_instance_url: str) -> None:
        """Set the URLs of the org, after the servers have started."""
        self.instance_url, self.https_instance_url = instance_url, https_instance_url

    def check_topic(self, name: str) -> None:
        """Check that a topic exists.

        :raises ValueError: if neither API has a topic of this name.
        """
        if self.topics.get(name) is None and name not in self.streaming_channels:
            raise ValueError(f"there is no topic {name!r}")

    def define_push_topic(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Create or change a PushTopic; return its name and id.

        :param content: the record's fields; ``ApiVersion`` is optional.
        :raises ValueError: if the record is refused; nothing was changed.
        """
        if not isinstance(content, Mapping):
            raise ValueError("a PushTopic must be a mapping with the keys 'Name' and 'Query'")
        return self._define(PUSH_TOPIC, f"/topic/{content.get('Name')}", {"ApiVersion": 66.0, **content})

    def define_generic_channel(self, name: str) -> dict[str, Any]:
        """Create a generic channel (``/u/...``) if it does not exist; return its name and id.

        :raises ValueError: if the channel is refused; nothing was changed.
        """
        return self._define(STREAMING_CHANNEL, name, {"Name": name})

    def _define(self, kind: str, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
        entity = self.sobjects.entities.get(kind)
        if entity is None:
            raise ValueError(f"there is no entity {kind}")
        record_id = self.streaming_channels.record_id(name)
        operation = Operation("UPDATE" if record_id else "CREATE", entity, record_id, content)
        (result,) = self.sobjects.commit([operation], user_id=self.user_id, origin="")
        if isinstance(result, ApiError):
            raise ValueError(str(result))
        return {"name": name, "id": result}

    def define_object(self, name: str, fields: Sequence[Mapping[str, Any]]) -> None:
        """Create a custom object with change events, or add fields to an object; existing fields may be repeated.

        :param fields: definitions for :meth:`Field.from_request` and :meth:`ComputedField.from_request`.
        :raises ValueError: if a definition is refused; nothing was changed.
        """
        if not isinstance(fields, list) or not all(isinstance(one, Mapping) for one in fields):
            raise ValueError(f"{name}: fields must be a list of mappings")
        try:
            computed = [(one, ComputedField.from_request(one)) for one in fields]
            filled = [Field.from_request(one) for one, field in computed if field is None]
        except KeyError as error:
            raise ValueError(f"{name}: a field has no {error.args[0]}") from None
        entities = self.sobjects.entities
        entities.define_object(name, filled)
        known = entities.get(name)
        for _, field in computed:
            if field is not None and known is not None and known.computed.get(field.name) != field:
                entities.add_computed_field(name, field)

    def load_topics(self, document: Mapping[str, Any]) -> None:
        """Define the content of a topics document: objects, events, channels, PushTopics and generic channels.

        :raises ValueError: if the document or an entry is malformed; the entries before it stay defined.
        """
        if not isinstance(document, Mapping):
            raise ValueError("topics must be a mapping")
        for one in document.get("objects") or ():
            if not isinstance(one, Mapping) or set(one) - {"name", "fields"}:
                raise ValueError("an object is a mapping: name, fields")
            self.define_object(str(one.get("name", "")), one.get("fields") or [])
        others = ("objects", "push_topics", "generic_channels")
        self.topics.load({key: value for key, value in document.items() if key not in others})
        for push_topic in document.get("push_topics") or ():
            self.define_push_topic(push_topic)
        for name in document.get("generic_channels") or ():
            self.define_generic_channel(str(name))

    def platform_event(
        self, topic: TopicDefinition, values: Mapping[str, Any], *, schema_id: str | None = None
    ) -> BusEvent:
        """Build a platform event, and add missing system fields.

        :raises ValueError: if clients cannot publish to the topic, or the values do not fit its schema.
        """
        if topic.event_name is None or not topic.can_publish:
            raise ValueError(f"{topic.name} cannot be published to")
        writer = schema_id or self.schemas.latest(topic.event_name) or ""
        if self.schemas.name(writer) != topic.event_name:
            raise ValueError(f"{writer!r} is not the id of a schema of {topic.event_name}")
        record = {"CreatedDate": int(self.now() * 1000), "CreatedById": self.user_id, **values}
        return BusEvent(topic.name, writer, encode(self.schemas.parsed(writer), record), str(uuid.uuid4()))

    def publish_platform_events(self, name: str, events: Sequence[Mapping[str, Any]]) -> list[tuple[bytes, str]]:
        """Publish platform events from field values; return the replay ID and the event id of each.

        :raises ValueError: if the topic does not exist, or the values of an event are invalid; nothing was published.
        """
        topic = self.topics.get(name)
        if topic is None:
            raise ValueError(f"there is no topic {name}")
        ready = [self.platform_event(topic, values) for values in events]
        replay_ids = self.bus.publish(ready)
        return [(replay_id, event.event_id or "") for replay_id, event in zip(replay_ids, ready, strict=True)]

    def wake_streams(self) -> None:
        """Wake all open streams, so that they check their sessions and the active faults."""
        for subscription in self.subscriptions:
            subscription.wake.set()
        self.cometd.wake()

    def close(self) -> None:
        """Close the databases and release the data directory."""
        self.sessions.close()
        self._database.close()
        self._lock.close()

    def _channels_of(self, name: str) -> Sequence[str]:
        return self.topics.channels_of(name) if self.topics.get(name) else ()
