"""Field types of sObjects: their forms in Avro change events, in describe results, and as REST columns.

The Avro types and ``doc`` texts were captured from schemas of a real org.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.identifiers import derived


@dataclass(frozen=True)
class FieldType:
    """A scalar type: Avro type, ``doc`` text, and type in describe results."""

    avro: str
    doc: str
    describe: str


@dataclass(frozen=True)
class CompoundType:
    """A field with named parts, a nested record in Avro. With ``or_text``, the value may also be a text."""

    doc: str
    parts: tuple[tuple[str, str], ...]
    or_text: bool = False

    @property
    def record_name(self) -> str:
        """Name of the Avro record."""
        return self.doc.removeprefix("Data:")


FIELD_TYPES: dict[str, FieldType] = {
    "Text": FieldType("string", "Data:Text", "string"),
    "Phone": FieldType("string", "Data:Phone", "phone"),
    "Email": FieldType("string", "Data:Email", "email"),
    "Url": FieldType("string", "Data:Url", "url"),
    "DynamicEnum": FieldType("string", "Data:DynamicEnum", "picklist"),
    "StaticEnum": FieldType("string", "Data:StaticEnum", "picklist"),
    "MultiEnum": FieldType("string", "Data:MultiEnum", "multipicklist"),
    "StringPlusClob": FieldType("string", "Data:StringPlusClob", "textarea"),
    "HtmlStringPlusClob": FieldType("string", "Data:HtmlStringPlusClob", "textarea"),
    "EntityId": FieldType("string", "ForeignKey:EntityId", "reference"),
    "ExternalId": FieldType("string", "ExternalForeignKey:ExternalId", "string"),
    "Currency": FieldType("double", "Data:Currency", "currency"),
    "Double": FieldType("double", "Data:Double", "double"),
    "Percent": FieldType("double", "Data:Percent", "percent"),
    "Integer": FieldType("int", "Data:Integer", "int"),
    "Boolean": FieldType("boolean", "Data:Boolean", "boolean"),
    "DateTime": FieldType("long", "Data:DateTime", "datetime"),
    "CreatedDate": FieldType("long", "CreatedDate:DateTime", "datetime"),
    "DateOnly": FieldType("long", "Data:DateOnly", "date"),
    "TimeOnly": FieldType("long", "Data:TimeOnly", "time"),
}

_NAME_PARTS = (("Salutation", "DynamicEnum"), ("FirstName", "Text"), ("LastName", "Text"))
_TEXT_PARTS = ("Street", "City", "State", "PostalCode", "Country", "StateCode", "CountryCode")
_COORDINATES = (("Latitude", "Double"), ("Longitude", "Double"))
COMPOUND_TYPES: dict[str, CompoundType] = {
    "Address": CompoundType(
        "Data:Address", (*((part, "Text") for part in _TEXT_PARTS), *_COORDINATES, ("GeocodeAccuracy", "Text"))
    ),
    "Location": CompoundType("Data:Location", _COORDINATES),
    "PersonName": CompoundType("Data:PersonName", _NAME_PARTS),
    "Switchable_PersonName": CompoundType("Data:Switchable_PersonName", _NAME_PARTS, or_text=True),
}


@dataclass(frozen=True)
class Column:
    """A column of a record in REST: a field, or a part of a compound field.

    ``position`` is the position of the field in the Avro record, ``part`` the position inside the compound field.
    """

    name: str
    type: str
    position: int
    part: int | None = None


TYPE_NAMES = {
    **dict.fromkeys(("TextArea", "LongTextArea"), "StringPlusClob"),
    "Html": "HtmlStringPlusClob",
    **dict.fromkeys(("AutoNumber", "EncryptedText"), "Text"),
    "Number": "Double",
    "Checkbox": "Boolean",
    "Date": "DateOnly",
    "Time": "TimeOnly",
    "Picklist": "DynamicEnum",
    "MultiselectPicklist": "MultiEnum",
    **dict.fromkeys(("Lookup", "MasterDetail"), "EntityId"),
}
"""Types of the Metadata API's CustomField with another name here; the other types have the same name."""

EXTERNAL_ID_TYPES = ("Text", "Email", "Double")


@dataclass(frozen=True)
class Field:
    """A field of an entity, with its name in change events and its type.

    :param external_id: whether the field is an external ID, so that records can be upserted by it.
    :param reference_to: the object that a field of type ``EntityId`` refers to; empty if not defined.
    :raises ValueError: if the type is unknown, or not allowed for an external ID or a reference.
    """

    name: str
    type: str
    external_id: bool = False
    reference_to: str = ""

    def __post_init__(self) -> None:
        if self.reference_to and self.type != "EntityId":
            raise ValueError(f"{self.name}: a reference is of type EntityId, not {self.type}")
        if self.external_id and self.type not in EXTERNAL_ID_TYPES:
            raise ValueError(f"{self.name}: an external ID is one of {', '.join(EXTERNAL_ID_TYPES)}, not {self.type}")
        if self.type not in FIELD_TYPES and self.type not in COMPOUND_TYPES:
            known = ", ".join(sorted({*FIELD_TYPES, *COMPOUND_TYPES, *TYPE_NAMES}))
            raise ValueError(f"{self.name}: there is no field type {self.type!r}; there are {known}")

    @classmethod
    def from_request(cls, body: Mapping[str, Any]) -> Field:
        """Parse the definition of a field in a request or a topics file.

        :param body: ``name``, ``type`` (of ``CustomField`` or of a change event), ``externalId``, ``referenceTo``.
        :raises KeyError: if an element is missing.
        :raises ValueError: if the type is unknown, or not allowed for the other elements.
        """
        if unknown := set(body) - {"name", "type", "externalId", "referenceTo"}:
            raise ValueError(f"a field has no {', '.join(sorted(map(str, unknown)))}")
        kind = str(body["type"])
        reference_to = str(body.get("referenceTo") or "")
        return cls(str(body["name"]), TYPE_NAMES.get(kind, kind), body.get("externalId") is True, reference_to)

    @property
    def compound(self) -> CompoundType | None:
        """Compound type of the field, ``None`` for a scalar field."""
        return COMPOUND_TYPES.get(self.type)

    def columns(self, position: int) -> list[Column]:
        """Return the REST columns of the field, which is at ``position`` of the Avro record."""
        if self.compound is None:
            return [Column(self.name, self.type, position)]
        parts = [
            Column(self._part_name(part), kind, position, index)
            for index, (part, kind) in enumerate(self.compound.parts)
        ]
        return [Column(self.name, "Text", position), *parts] if self.compound.or_text else parts

    def _part_name(self, part: str) -> str:
        if self.type in ("Address", "Location") and self.name.endswith("__c"):
            return f"{self.name.removesuffix('c')}{part}__s"
        if self.type == "Address":
            return self.name.removesuffix("Address") + part
        return part

    def avro(self, entity: str, defined: set[str]) -> dict[str, Any]:
        """Return the Avro definition of the field.

        :param defined: names of the records already defined in the schema, which are referenced; new names are added.
        """
        if self.compound is None:
            kind = FIELD_TYPES[self.type]
            branches: list[Any] = ["null", kind.avro]
            doc = kind.doc
        else:
            record = self.compound.record_name
            branches = ["null", *(["string"] if self.compound.or_text else [])]
            branches.append(record if record in defined else _record(self.compound))
            defined.add(record)
            doc = self.compound.doc
        if self.name.endswith(("__c", "__pc")):
            doc += f":{derived('00N', f'{entity}.{self.name}')[:15]}"
        return {"name": self.name, "type": branches, "doc": doc, "default": None}


def _record(compound: CompoundType) -> dict[str, Any]:
    fields = [{"name": n, "type": ["null", FIELD_TYPES[t].avro], "default": None} for n, t in compound.parts]
    return {"type": "record", "name": compound.record_name, "fields": fields}
