"""JSON documents of dataclasses: bytes in hex, times in ISO 8601, durations in seconds, tuples as lists. Secrets, which
are fields without ``repr``, are in no document. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidReplayIdError, ManifestError
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text

_T = TypeVar("_T")


def to_document(value: Any) -> Any:
    """Return a dataclass instance, or a value of one of its fields, as a JSON value."""
    if is_dataclass(value):
        return {each.name: to_document(getattr(value, each.name)) for each in fields(value) if each.repr}
    if isinstance(value, dict):
        return {key: to_document(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_document(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def from_document(type_: type[_T], document: Any) -> _T:
    """Return the value of a type in the result of :func:`to_document`. Fields with a default may be missing.

    :raises ValueError: for anything else; also ``KeyError``, ``TypeError``, ``AttributeError``, ``ConfigurationError``.
    """
    read: Callable[[Any], _T] = _reader(cast(Any, type_))
    return read(document)


@cache
def _reader(type_: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(type_), get_args(type_)
    if is_dataclass(type_):
        readers = {name: _reader(hint) for name, hint in get_type_hints(type_).items()}
        create = cast(Callable[..., Any], type_)
        return lambda document: create(**{name: readers[name](value) for name, value in document.items()})
    if origin is UnionType and NoneType in arguments:
        read = _reader(arguments[0])
        return lambda value: None if value is None else read(value)
    if origin in (dict, Mapping):
        read_value = _reader(arguments[1])
        return lambda document: {key: read_value(value) for key, value in document.items()}
    if origin is tuple and arguments[-1] is ...:
        read_item = _reader(arguments[0])
        return lambda items: tuple(read_item(item) for item in items)
    if origin is tuple:
        item_readers = [_reader(argument) for argument in arguments]
        return lambda items: tuple(read(item) for read, item in zip(item_readers, items, strict=True))
    if origin is Literal:
        return lambda value: _one_of(arguments, value)
    if type_ in (str, int, bool):
        return lambda value: _of_type(type_, value)
    return _READERS.get(type_, lambda value: value)


def _one_of(values: tuple[Any, ...], value: Any) -> Any:
    if value not in values:
        raise ValueError(f"expected one of {values}, got {value!r}")
    return value


def _of_type(type_: type, value: Any) -> Any:
    if type(value) is not type_:  # not isinstance(): a boolean is an int
        raise TypeError(f"expected {type_.__name__}, got {value!r}")
    return value


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} has no time zone")
    return time


def _replay_id(replay_id: str) -> bytes:
    try:
        return replay_id_from_text(replay_id)
    except InvalidReplayIdError as error:  # its message is about arguments
        raise ValueError(f"{replay_id!r} is not a replay ID in hex") from error


def _duration(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


_READERS: dict[Any, Callable[[Any], Any]] = {datetime: _time, bytes: _replay_id, timedelta: _duration}


@contextmanager
def document_errors(name: str, noun: str, remedy: str) -> Iterator[None]:
    """Convert the errors of reading a document to :class:`ManifestError`.

    :param name: the name of the file.
    :param remedy: the end of the message, after "It was changed after it was written".
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigurationError) as error:
        raise ManifestError(
            f"{name} is not a readable {noun} ({type(error).__name__}: {error}). It was changed after it was written"
            f"{remedy}"
        ) from error
