"""Validation of records of custom channels and their members. Pure.

Source: the Tooling API and Metadata API references of ``PlatformEventChannel`` and ``PlatformEventChannelMember``. They
do not document error codes and texts; those here imitate the errors of other objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sfstream_localorg.errors import ApiError

LONGEST_NAME = 80
CHANNEL_TYPES = {"event": "/event/", "data": "/data/"}
_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*", re.ASCII)


def check_name(name: object, *, suffix: str = "") -> str:
    """Validate and return the full name of a new record.

    :param suffix: required ending of the name.
    :raises ApiError: if the name is missing or invalid.
    """
    if name in (None, ""):
        raise ApiError("REQUIRED_FIELD_MISSING", "Required fields are missing: [FullName]", fields=("FullName",))
    if not isinstance(name, str) or not name.endswith(suffix) or not _NAME.fullmatch(name.removesuffix(suffix)):
        message = (
            f"{name} is not a valid full name. It can only contain underscores and alphanumeric characters, must be "
            "unique, begin with a letter, not include spaces, not end with an underscore, and not contain two "
            f"consecutive underscores{f' but those of {suffix} at its end' if suffix else ''}."
        )
        raise ApiError("FIELD_INTEGRITY_EXCEPTION", message, fields=("FullName",))
    if len(name.removesuffix(suffix)) > LONGEST_NAME:
        message = f"FullName: data value too large: {name} (max length={LONGEST_NAME})"
        raise ApiError("STRING_TOO_LONG", message, fields=("FullName",))
    return name


def metadata_of(body: Mapping[str, Any], *required: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the elements of a request's Metadata that have a value.

    :raises ApiError: if an element is unknown or missing, or the request has no Metadata.
    """
    metadata = body.get("Metadata")
    if not isinstance(metadata, Mapping):
        raise ApiError("JSON_PARSER_ERROR", "Metadata must be a JSON object")
    if unknown := sorted(set(metadata) - {*required, *optional}):
        raise ApiError("JSON_PARSER_ERROR", f"Unrecognized field '{unknown[0]}' in Metadata")
    given = {name: value for name, value in metadata.items() if value not in (None, "", [])}
    if missing := [name for name in required if name not in given]:
        raise ApiError("REQUIRED_FIELD_MISSING", f"Required fields are missing: [{', '.join(missing)}]")
    for name in required:
        _text(name, given[name])
    return given


def channel_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the channel type and the label in a request's Metadata.

    :raises ApiError: if Salesforce would refuse them.
    """
    given = metadata_of(body, "channelType", "label")
    if given["channelType"] not in CHANNEL_TYPES:
        message = f"Cannot deserialize instance of PlatformEventChannelType from VALUE_STRING {given['channelType']}"
        raise ApiError("JSON_PARSER_ERROR", message)
    if len(given["label"]) > LONGEST_NAME:
        raise ApiError("STRING_TOO_LONG", f"Label: data value too large (max length={LONGEST_NAME})")
    return given["channelType"], given["label"]


def member_of(body: Mapping[str, Any], version: str) -> tuple[str, str, str, tuple[str, ...]]:
    """Return the channel, entity, filter expression and enriched fields in a request's Metadata.

    :param version: the API version of the request. Filters exist from 56.0 on, enriched fields from 51.0 on.
    :raises ApiError: if Salesforce would refuse them for any channels and entities.
    """
    number = float(version)
    optional = [name for name, first in (("enrichedFields", 51), ("filterExpression", 56)) if number >= first]
    given = metadata_of(body, "eventChannel", "selectedEntity", optional=tuple(optional))
    expression = _text("filterExpression", given.get("filterExpression", ""))
    fields = given.get("enrichedFields", [])
    if not isinstance(fields, list) or not all(isinstance(one, dict) and set(one) == {"name"} for one in fields):
        raise ApiError("JSON_PARSER_ERROR", "enrichedFields must be a list of objects with a name")
    names = tuple(_text("name", one["name"]) for one in fields)
    return given["eventChannel"], given["selectedEntity"], expression, names


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ApiError("JSON_PARSER_ERROR", f"Cannot deserialize instance of string from the value of {name}")
    return value
