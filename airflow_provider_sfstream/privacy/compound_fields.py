"""Names of the parts of compound fields: nested in change events, flat in SOQL and PushTopics. Pure.

====================================== ================================ ==================================
compound field                         a part, nested                   the same part, flat
====================================== ================================ ==================================
address: ``MailingAddress``            ``MailingAddress.Street``        ``MailingStreet``
custom address: ``Home__c``            ``Home__c.Street``               ``Home__Street__s``
geolocation: ``Place__c``              ``Place__c.Latitude``            ``Place__Latitude__s``
name of a person: ``Name``             ``Name.FirstName``               ``FirstName``
====================================== ================================ ==================================

Only names are used, no schema: an event may lack a schema, and a refresh fetches fields that no event carries. Names of
parts of a compound field that does not exist are harmless: no field has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAME_PARTS = ("salutation", "firstname", "middlename", "lastname", "suffix", "informalname")
_ADDRESS_PARTS = (
    *("street", "city", "state", "statecode", "postalcode", "country", "countrycode"),
    *("latitude", "longitude", "geocodeaccuracy"),
)
_ANY_PART = "|".join(_ADDRESS_PARTS)
_ADDRESS = re.compile(r"(?P<stem>\w*)address(?:\.(?P<part>\w+))?", re.ASCII)
_ADDRESS_PART = re.compile(rf"(?P<stem>\w*?)(?P<part>{_ANY_PART})", re.ASCII)
_CUSTOM = re.compile(r"(?P<stem>\w+)__(?P<kind>p?c)(?:\.(?P<part>\w+))?", re.ASCII)
_CUSTOM_PART = re.compile(rf"(?P<stem>\w+)__(?P<part>{_ANY_PART})__(?P<kind>s|ps|pc)", re.ASCII)
_KINDS = {"c": ("s",), "pc": ("ps", "pc")}
"""Suffixes of parts of a custom field: of an object's own field, and of a contact's field in a person account."""


def other_names(name: str) -> Iterator[str]:
    """Yield the other names of a field and of its parts, in lower case.

    :param name: of a compound field, or of a part, nested or flat, in lower case.
    """
    if name == "name":
        yield from _NAME_PARTS
    elif name.removeprefix("name.") in _NAME_PARTS:
        yield name.removeprefix("name.") if name.startswith("name.") else f"name.{name}"
    if match := _ADDRESS.fullmatch(name):
        yield from (f"{match['stem']}{part}" for part in _parts(match["part"]))
    elif match := _ADDRESS_PART.fullmatch(name):
        yield f"{match['stem']}address.{match['part']}"
    if match := _CUSTOM_PART.fullmatch(name):
        yield f"{match['stem']}__{'c' if match['kind'] == 's' else 'pc'}.{match['part']}"
    elif match := _CUSTOM.fullmatch(name):
        kinds = _KINDS[match["kind"]]
        yield from (f"{match['stem']}__{part}__{kind}" for part in _parts(match["part"]) for kind in kinds)


def _parts(part: str | None) -> tuple[str, ...]:
    return _ADDRESS_PARTS if part is None else (part,)
