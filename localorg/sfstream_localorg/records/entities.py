"""sObject types of the local org, and the custom fields and objects added at run time.

Account and Contact have exactly the fields captured from a real org, including that org's custom fields.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence

from sfstream_localorg.bus.topics import TopicRegistry
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.records.computed_fields import ComputedField, ComputedFields
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field

_AUDIT = "CreatedDate:CreatedDate CreatedById:EntityId LastModifiedDate:DateTime LastModifiedById:EntityId"

ACCOUNT = f"""
Name:Switchable_PersonName Type:DynamicEnum RecordTypeId:EntityId ParentId:EntityId
BillingAddress:Address ShippingAddress:Address Phone:Phone Fax:Phone AccountNumber:Text Website:Url Sic:Text
Industry:DynamicEnum AnnualRevenue:Currency NumberOfEmployees:Integer Ownership:DynamicEnum TickerSymbol:Text
Description:StringPlusClob Rating:DynamicEnum Site:Text OwnerId:EntityId {_AUDIT}
PersonContactId:EntityId PersonMailingAddress:Address PersonOtherAddress:Address
PersonMobilePhone:Phone PersonHomePhone:Phone PersonOtherPhone:Phone PersonAssistantPhone:Phone PersonEmail:Email
PersonTitle:Text PersonDepartment:Text PersonAssistantName:Text PersonLeadSource:DynamicEnum PersonBirthdate:DateOnly
PersonHasOptedOutOfEmail:Boolean PersonHasOptedOutOfFax:Boolean PersonDoNotCall:Boolean
PersonLastCURequestDate:DateTime PersonLastCUUpdateDate:DateTime PersonEmailBouncedReason:Text
PersonEmailBouncedDate:DateTime PersonIndividualId:EntityId PersonPronouns:DynamicEnum
PersonGenderIdentity:DynamicEnum Jigsaw:Text JigsawCompanyId:ExternalId CleanStatus:StaticEnum
AccountSource:DynamicEnum DunsNumber:Text Tradestyle:Text NaicsCode:Text NaicsDesc:Text YearStarted:Text SicDesc:Text
DandbCompanyId:EntityId OperatingHoursId:EntityId
CustomerPriority__c:DynamicEnum SLA__c:DynamicEnum Active__c:DynamicEnum NumberofLocations__c:Double
SLASerialNumber__c:Text SLAExpirationDate__c:DateOnly Some_phone__c:Phone Amount_Owed__c:Currency
Some_Date_Time__c:DateTime Some_Date__c:DateOnly Some_Email__c:Email Some_Geolocation__c:Location
Some_Number__c:Double Some_Percent__c:Percent Some_Picklist__c:DynamicEnum Some_Multipicklist__c:MultiEnum
Some_Text__c:Text Some_Rich_Text_Area__c:HtmlStringPlusClob Some_Time__c:TimeOnly Some_URL__c:Url
GUID__c:Text:external
Some_Check_Box__c:Boolean Some_Other_Text__c:Text Another_One__c:Boolean
Level__pc:DynamicEnum Languages__pc:Text GUID__pc:Text
"""

CONTACT = f"""
AccountId:EntityId IsPersonAccount:Boolean Name:PersonName OtherAddress:Address MailingAddress:Address
Phone:Phone Fax:Phone MobilePhone:Phone HomePhone:Phone OtherPhone:Phone AssistantPhone:Phone ReportsToId:EntityId
Email:Email Title:Text Department:Text AssistantName:Text LeadSource:DynamicEnum Birthdate:DateOnly
Description:StringPlusClob OwnerId:EntityId HasOptedOutOfEmail:Boolean HasOptedOutOfFax:Boolean DoNotCall:Boolean
{_AUDIT} LastCURequestDate:DateTime LastCUUpdateDate:DateTime EmailBouncedReason:Text EmailBouncedDate:DateTime
Jigsaw:Text JigsawContactId:ExternalId CleanStatus:StaticEnum IndividualId:EntityId Pronouns:DynamicEnum
GenderIdentity:DynamicEnum ContactSource:StaticEnum BuyerAttributes:MultiEnum
Level__c:DynamicEnum Languages__c:Text GUID__c:Text:external
"""

OPPORTUNITY = f"""
AccountId:EntityId IsPrivate:Boolean Name:Text Description:StringPlusClob StageName:DynamicEnum Amount:Currency
Probability:Percent ExpectedRevenue:Currency TotalOpportunityQuantity:Double CloseDate:DateOnly Type:DynamicEnum
NextStep:Text LeadSource:DynamicEnum IsClosed:Boolean IsWon:Boolean ForecastCategory:StaticEnum
ForecastCategoryName:DynamicEnum CampaignId:EntityId HasOpportunityLineItem:Boolean Pricebook2Id:EntityId
OwnerId:EntityId {_AUDIT} ContactId:EntityId
"""

SHIPMENT = f"""
OwnerId:EntityId Name:Text {_AUDIT} Account__c:EntityId Status__c:DynamicEnum Carrier__c:Text
Weight__c:Double Declared_Value__c:Currency Pieces__c:Double Insured__c:Boolean Ship_Date__c:DateOnly
Delivered_At__c:DateTime Pickup_Time__c:TimeOnly Destination__c:Location Instructions__c:StringPlusClob
"""

PUSH_TOPIC = f"""
Name:Text Query:StringPlusClob ApiVersion:Double IsActive:Boolean Description:StringPlusClob
NotifyForFields:StaticEnum NotifyForOperationCreate:Boolean NotifyForOperationUpdate:Boolean
NotifyForOperationDelete:Boolean NotifyForOperationUndelete:Boolean {_AUDIT}
"""

STREAMING_CHANNEL = f"""
Name:Text OwnerId:EntityId Description:StringPlusClob IsDynamic:Boolean {_AUDIT}
"""


CUSTOM_OBJECT = f"""
OwnerId:EntityId Name:Text {_AUDIT}
"""
"""Fields that a custom object has in addition to its defined fields."""

_EXTERNAL = ":external"
_REFERENCE = ":to="
"""Markers of an external ID and of the referenced object, in the definitions above and in the database."""


def _fields(text: str) -> tuple[Field, ...]:
    return tuple(_field(*entry.split(":", 1)) for entry in text.split())


def _field(name: str, kind: str) -> Field:
    kind, _, reference_to = kind.partition(_REFERENCE)
    return Field(name, kind.removesuffix(_EXTERNAL), kind.endswith(_EXTERNAL), reference_to)


def _kind(field: Field) -> str:
    reference = f"{_REFERENCE}{field.reference_to}" if field.reference_to else ""
    return f"{field.type}{_EXTERNAL * field.external_id}{reference}"


STANDARD_ENTITIES = (
    Entity("Account", "001", _fields(ACCOUNT), required=("Name",)),
    Entity("Contact", "003", _fields(CONTACT), required=("LastName",)),
    Entity("Opportunity", "006", _fields(OPPORTUNITY), required=("Name", "StageName", "CloseDate")),
    Entity("Shipment__c", "a00", _fields(SHIPMENT)),
    Entity(
        "PushTopic",
        "0IF",
        _fields(PUSH_TOPIC),
        required=("Name", "Query", "ApiVersion"),
        initial=(
            ("IsActive", True),
            ("NotifyForFields", "Referenced"),
            *((f"NotifyForOperation{operation}", True) for operation in ("Create", "Update", "Delete", "Undelete")),
        ),
        has_change_events=False,
    ),
    Entity("StreamingChannel", "0M6", _fields(STREAMING_CHANNEL), required=("Name",), has_change_events=False),
)


_CUSTOM_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*__c", re.ASCII)


class Entities:
    """All entities of one org. Defines their change-event topics; added fields are stored in the org's database."""

    def __init__(self, database: sqlite3.Connection, topics: TopicRegistry) -> None:
        self._database = database
        self._topics = topics
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS added_field (number INTEGER PRIMARY KEY, entity TEXT NOT NULL, "
                "name TEXT NOT NULL, type TEXT NOT NULL)"
            )
            database.execute(
                "CREATE TABLE IF NOT EXISTS own_object (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL)"
            )
        self._entities = {entity.name: entity for entity in STANDARD_ENTITIES}
        for number, name in database.execute("SELECT number, name FROM own_object ORDER BY number"):
            self._entities[name] = _custom_object(number, name)
        for entity, name, kind in database.execute("SELECT entity, name, type FROM added_field ORDER BY number"):
            self._entities[entity] = self._entities[entity].with_field(_field(name, kind))
        self._computed = ComputedFields(database)
        for entity, field in self._computed:
            self._entities[entity] = self._entities[entity].with_computed(field)
        for one in self.captured():
            topics.define_change_event(one.schema())

    def __iter__(self) -> Iterator[Entity]:
        return iter(list(self._entities.values()))

    def captured(self) -> list[Entity]:
        """Return the entities that have change events."""
        return [entity for entity in self if entity.has_change_events]

    def get(self, name: str) -> Entity | None:
        """Return the entity ``name``, ``None`` if it does not exist. The name is case-insensitive."""
        return next((entity for entity in self if entity.name.lower() == name.lower()), None)

    def of_topic(self, topic: str) -> Entity:
        """Return the entity of a change-event topic."""
        return next(entity for entity in self.captured() if entity.topic == topic)

    def of_record(self, record_id: str) -> Entity | None:
        """Return the entity of a record id by its key prefix, ``None`` if it is unknown."""
        return next((entity for entity in self if record_id.startswith(entity.key_prefix)), None)

    def add_field(self, entity: str, field: Field) -> str:
        """Add a custom field to an entity; return the new schema id, which later change events have.

        :raises ValueError: if the entity does not exist, the field exists, or its name is not valid for a custom
            field. Nothing was changed.
        """
        known = self._extensible_entity(entity)
        self._check_custom(field)
        self._check_reference(known, field)
        return self._add_fields(known, [field])

    def define_object(self, name: str, fields: Sequence[Field]) -> str:
        """Create a custom object with fields, or add the missing fields to an object; return its new schema id.

        :raises ValueError: if the name or a field is invalid at Salesforce, or a field exists with another type.
            Nothing was changed.
        """
        known = self.get(name)
        is_new = known is None
        if known is None:
            if not _CUSTOM_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a custom object, such as Invoice__c")
            known = _custom_object(self._next_object(), name)
        if not known.has_change_events:
            raise ValueError(f"{name} cannot have fields of one's own")
        former = {field.name: field for field in known.fields}
        for field in fields:
            if field.name in former and former[field.name] != field:
                raise ValueError(f"{name}: {field.name} is there already, as {former[field.name].type}")
        new = [field for field in fields if field.name not in former]
        for field in new:
            self._check_custom(field)
            self._check_reference(known, field)
        return self._add_fields(known, new, is_new=is_new)

    def _add_fields(self, known: Entity, fields: Sequence[Field], *, is_new: bool = False) -> str:
        grown = known
        for field in fields:
            grown = grown.with_field(field)
        topic = self._topics.define_change_event(grown.schema())
        with self._database:
            if is_new:
                self._database.execute("INSERT INTO own_object (name) VALUES (?)", (known.name,))
            self._database.executemany(
                "INSERT INTO added_field (entity, name, type) VALUES (?, ?, ?)",
                [(known.name, field.name, _kind(field)) for field in fields],
            )
        self._entities[known.name] = grown
        return self._topics.schema_id(topic)

    def _next_object(self) -> int:
        row = self._database.execute("SELECT max(number) FROM own_object").fetchone()
        return int(row[0] or 0) + 1

    def _check_reference(self, entity: Entity, field: Field) -> None:
        targets = {"User", entity.name, *(one.name for one in self)}
        if field.reference_to and field.reference_to not in targets:
            raise ValueError(f"{field.name}: there is no object {field.reference_to!r} to refer to")

    @staticmethod
    def _check_custom(field: Field) -> None:
        if not _CUSTOM_NAME.fullmatch(field.name):
            raise ValueError(f"{field.name!r} is not the name of a custom field, such as Colour__c")
        if field.compound is not None and field.type != "Location":
            raise ValueError(f"{field.name}: a custom field cannot be of type {field.type}")

    def add_computed_field(self, entity: str, field: ComputedField) -> None:
        """Add a formula field or a roll-up summary to an entity, without a change to its change events.

        :raises ValueError: for the reasons of :meth:`add_field`. Nothing was changed.
        """
        known = self._extensible_entity(entity)
        if not _CUSTOM_NAME.fullmatch(field.name):
            raise ValueError(f"{field.name!r} is not the name of a custom field, such as Colour__c")
        self._entities[known.name] = known.with_computed(field)
        self._computed.add(known.name, field)

    def _extensible_entity(self, entity: str) -> Entity:
        known = self.get(entity)
        if known is None or not known.has_change_events:
            names = ", ".join(one.name for one in self.captured())
            raise ValueError(f"there is no entity {entity!r}; there are {names}")
        return known


def _custom_object(number: int, name: str) -> Entity:
    """Return a new custom object. Its key prefix follows that of ``Shipment__c``: ``a01``, ``a02``."""
    return Entity(name, f"a{numbered('a00', number)[13:15]}", _fields(CUSTOM_OBJECT))
