"""SOQL queries for whole records, up to Salesforce's length limits. Pure.

Sources: "SOQL and SOSL Limits for Search Queries" of the SOQL guide (100,000 characters), "Status Codes and Error
Responses" of the REST API guide (16,384 bytes for a URL, and for URL and headers together).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import quote_plus

LONGEST_SOQL = 100_000
LONGEST_URL = 16_384
_RESERVED_BYTES = 4_096
"""Bytes reserved in a request for its host, path and headers, including the access token."""

_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_RECORD_ID = re.compile(r"[A-Za-z0-9]{15}(?:[A-Za-z0-9]{3})?", re.ASCII)
_ANY_ID = "001000000000001AAA"

Item = TypeVar("Item")


def select(entity: str, columns: Sequence[str], ids: Collection[str] = ()) -> str:
    """Return the query for columns of all records of ``entity``, or of those with these ids.

    :raises ValueError: if a name or an id is invalid, which prevents injection into the query.
    """
    for name in (entity, *columns):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an object or a field")
    for record_id in ids:
        if not _RECORD_ID.fullmatch(record_id):
            raise ValueError(f"{record_id!r} is not the id of a record")
    where = f" WHERE Id IN ({','.join(map(repr, ids))})" if ids else ""
    return f"SELECT {','.join(columns)} FROM {entity}{where}"  # noqa: S608


def count(entity: str) -> str:
    """Return the query for the number of records of ``entity``."""
    return select(entity, ["Id"]).replace("SELECT Id ", "SELECT COUNT() ")


def ids_in_url(entity: str, columns: Sequence[str]) -> int:
    """Return the maximum number of ids in a query for these columns in a URL; 0 if the columns alone are too long.

    Salesforce accepts queries of the REST API only in the URL.
    """
    return _room(entity, columns, LONGEST_URL - _RESERVED_BYTES, lambda text: len(quote_plus(text)))


def ids_in_body(entity: str, columns: Sequence[str]) -> int:
    """Return the maximum number of ids in a query for these columns in a request body."""
    return _room(entity, columns, LONGEST_SOQL, len)


def fits_in_url(entity: str, columns: Sequence[str]) -> bool:
    """Return whether the query for these columns of all records fits into a URL."""
    return len(quote_plus(select(entity, columns))) <= LONGEST_URL - _RESERVED_BYTES


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of ``size``; the last one may be shorter."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def _room(entity: str, columns: Sequence[str], most: int, length: Callable[[str], int]) -> int:
    with_one_id = length(select(entity, columns, [_ANY_ID]))
    further_id = length(f",{_ANY_ID!r}")
    return max((most - with_one_id) // further_id + 1, 0)
