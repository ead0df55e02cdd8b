"""Invalid and dangerous Avro schemas, each with text of the expected error."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.salesforce.schemas import DEEPEST, MOST_MEMBERS


def record(*types: Any, name: str = "Order__e", **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def nested(levels: int) -> Any:
    type_: Any = "int"
    for _ in range(levels):
        type_ = {"type": "array", "items": type_}
    return type_


def doubling(times: int) -> dict[str, Any]:
    """Return a schema of ``times`` nested records that each contain the previous record twice."""
    types: list[Any] = [record("int", "int", name="R0")]
    types += [record(f"R{number}", f"R{number}", name=f"R{number + 1}") for number in range(times)]
    return record(*types)


def enum(*symbols: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


HOSTILE: dict[str, tuple[Any, str]] = {
    "a record that contains itself": (record("Order__e"), "contains itself"),
    "a record that contains itself or null": (record(["null", "Order__e"]), "contains itself"),
    "a list of itself": (record({"type": "array", "items": "Order__e"}), "contains itself"),
    "two records that contain each other": (record(record(["null", "Order__e"], name="B")), "contains itself"),
    "a record that contains itself by its full name": (record("x.y.Order__e", namespace="x.y"), "contains itself"),
    "references that expand to 2^40": (doubling(40), f"more than {MOST_MEMBERS} members"),
    "more fields than an object can have": (record(*["int"] * MOST_MEMBERS), f"more than {MOST_MEMBERS} members"),
    "too many levels": (record(nested(900)), f"more than {DEEPEST} levels"),
    "a list of empty records": (record({"type": "array", "items": record(name="Empty")}), "have no bytes"),
    "a list of null": (record({"type": "array", "items": "null"}), "have no bytes"),
    "a list of records of null": (record({"type": "array", "items": record("null", name="N")}), "have no bytes"),
    "a fixed of 2^40 bytes": (record({"type": "fixed", "name": "F", "size": 2**40}), "the size of a fixed must be"),
    "a fixed of -1 bytes": (record({"type": "fixed", "name": "F", "size": -1}), "the size of a fixed must be"),
    "a fixed of true bytes": (record({"type": "fixed", "name": "F", "size": True}), "the size of a fixed must be"),
    "a symbol twice": (record(enum("A", "A")), "a duplicate name"),
    "no symbols": (record(enum()), "no symbols"),
    "a symbol that is a list": (record(enum(["A"])), "an invalid name"),
    "a name for two types": (record(enum("A"), {"type": "fixed", "name": "E", "size": 1}), "defined twice"),
    "a field twice": (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2},
        "a duplicate name",
    ),
    "a field with a backtick": (
        {"type": "record", "name": "R", "fields": [{"name": "a` string, `b", "type": "int"}]},
        "an invalid name",
    ),
    "a field with a dot": (
        {"type": "record", "name": "R", "fields": [{"name": "a.b", "type": "int"}]},
        "an invalid name",
    ),
    "a field without a name": ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "an invalid name"),
    "a field that is not an object": ({"type": "record", "name": "R", "fields": ["int"]}, "no list of fields"),
    "fields that are not a list": ({"type": "record", "name": "R", "fields": {"a": "int"}}, "no list of fields"),
    "a record named by a number": ({"type": "record", "name": 7, "fields": []}, "is not a valid name"),
    "a record without a name": ({"type": "record", "fields": []}, "is not a valid name"),
    "a name that is a path": (record(name="../../etc"), "is not a valid name"),
    "a namespace that is a list": (record(namespace=["x"]), "is not a valid name"),
    "an undefined type": (record("Missing"), "is not a type"),
    "a type that is a number": (record(7), "is not a type"),
    "a field without a type": ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "is not a type"),
    "a logical type that is a list": (record({"type": "long", "logicalType": []}), "is not a type"),
    "an empty union": (record([]), "a union is empty"),
    "a union in a union": (record(["null", ["int"]]), "contains a union"),
    "a list without an item type": (record({"type": "array"}), "is not a type"),
    "a map of itself": (record({"type": "map", "values": "Order__e"}), "contains itself"),
}
