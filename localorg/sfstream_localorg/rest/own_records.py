"""Built-in, read-only records of an org: its only user, and the organization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from sfstream_localorg.records.record_store import StoredRecord

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_AUDIT = (
    Field("CreatedDate", "CreatedDate"),
    Field("CreatedById", "EntityId"),
    Field("LastModifiedDate", "DateTime"),
    Field("LastModifiedById", "EntityId"),
)
_USER = Entity(
    "User",
    "005",
    (Field("Username", "Text"), Field("Name", "Text"), Field("Email", "Email"), Field("IsActive", "Boolean"), *_AUDIT),
    has_change_events=False,
)
_ORGANIZATION = Entity(
    "Organization",
    "00D",
    (
        Field("Name", "Text"),
        Field("OrganizationType", "Text"),
        Field("InstanceName", "Text"),
        Field("IsSandbox", "Boolean"),
        *_AUDIT,
    ),
    has_change_events=False,
)
OWN_ENTITIES = {entity.name.lower(): entity for entity in (_USER, _ORGANIZATION)}
"""Entities of the built-in records, by name in lower case."""


def own_record(org: Org, entity: Entity) -> StoredRecord:
    """Return the only record of an entity of :data:`OWN_ENTITIES`, with the same values as logins and userinfo."""
    created = int(org.created_at) * 1000
    audit = {"CreatedDate": created, "CreatedById": org.user_id}
    audit |= {"LastModifiedDate": created, "LastModifiedById": org.user_id}
    if entity is _USER:
        name = org.username.partition("@")[0]
        content = {"Username": org.username, "Name": name, "Email": org.username, "IsActive": True, **audit}
        return StoredRecord(org.user_id, entity.name, content, created)
    content = {
        "Name": "Local Org",
        "OrganizationType": "Developer Edition",
        "InstanceName": "LOCAL",
        "IsSandbox": False,
        **audit,
    }
    return StoredRecord(org.org_id, entity.name, content, created)
