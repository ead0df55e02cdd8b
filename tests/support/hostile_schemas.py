"""Avro schemas that libraries stumble over, each with what is said of it."""

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
    """Return a schema of so many small records, each with two of the one before."""
    types: list[Any] = [record("int", "int", name="R0")]
    types += [record(f"R{number}", f"R{number}", name=f"R{number + 1}") for number in range(times)]
    return record(*types)


def enum(*symbols: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


HOSTILE: dict[str, tuple[Any, str]] = {
    "a record that is in itself": (record("Order__e"), "contains itself"),
    "a record that is in itself, or null": (record(["null", "Order__e"]), "contains itself"),
    "a list of itself": (record({"type": "array", "items": "Order__e"}), "contains itself"),
    "two records in one another": (record(record(["null", "Order__e"], name="B")), "contains itself"),
    "in itself by its full name": (record("x.y.Order__e", namespace="x.y"), "contains itself"),
    "references that unfold to 2^40": (doubling(40), f"more than {MOST_MEMBERS} members"),
    "more fields than any object": (record(*["int"] * MOST_MEMBERS), f"more than {MOST_MEMBERS} members"),
    "levels without end": (record(nested(900)), f"more than {DEEPEST} levels"),
    "a list of nothing": (record({"type": "array", "items": record(name="Empty")}), "take no bytes"),
    "a list of null": (record({"type": "array", "items": "null"}), "take no bytes"),
    "a list of records of null": (record({"type": "array", "items": record("null", name="N")}), "take no bytes"),
    "a fixed of 2^40 bytes": (record({"type": "fixed", "name": "F", "size": 2**40}), "a fixed has"),
    "a fixed of -1 bytes": (record({"type": "fixed", "name": "F", "size": -1}), "a fixed has"),
    "a fixed of true bytes": (record({"type": "fixed", "name": "F", "size": True}), "a fixed has"),
    "a symbol twice": (record(enum("A", "A")), "one name twice"),
    "no symbols": (record(enum()), "no symbols"),
    "a symbol that is a list": (record(enum(["A"])), "a name that is none"),
    "a name for two types": (record(enum("A"), {"type": "fixed", "name": "E", "size": 1}), "defined twice"),
    "a field twice": ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "one name twice"),
    "a field with a backtick": (
        {"type": "record", "name": "R", "fields": [{"name": "a` string, `b", "type": "int"}]},
        "a name that is none",
    ),
    "a field with a dot": ({"type": "record", "name": "R", "fields": [{"name": "a.b", "type": "int"}]}, "a name that"),
    "a field without a name": ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "a name that is none"),
    "a field that is no object": ({"type": "record", "name": "R", "fields": ["int"]}, "no list of fields"),
    "fields that are no list": ({"type": "record", "name": "R", "fields": {"a": "int"}}, "no list of fields"),
    "a record named by a number": ({"type": "record", "name": 7, "fields": []}, "no name"),
    "a record without a name": ({"type": "record", "fields": []}, "no name"),
    "a name that is a path": (record(name="../../etc"), "no name"),
    "a namespace that is a list": (record(namespace=["x"]), "no name"),
    "a type that nobody defines": (record("Missing"), "is no type"),
    "a type that is a number": (record(7), "no type"),
    "a type that is nothing": ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "no type"),
    "a logical type that is a list": (record({"type": "long", "logicalType": []}), "no type"),
    "an empty union": (record([]), "a union is empty"),
    "a union in a union": (record(["null", ["int"]]), "a union in it"),
    "a list of no type": (record({"type": "array"}), "no type"),
    "a map of itself": (record({"type": "map", "values": "Order__e"}), "contains itself"),
}
