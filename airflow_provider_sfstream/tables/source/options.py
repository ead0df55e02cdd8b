"""Options of ``spark.read.format("sfstream")``, validated before anything is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import has_credentials, quoted_setting, remember_secrets
from airflow_provider_sfstream.replay_stores.kinds import REPLAY_STORES
from airflow_provider_sfstream.salesforce.topics import Topic

RowKind = Literal["decoded", "raw", "quarantine"]
STORAGE = "storage."
"""Prefix of the storage's own options."""
_CHOICES: dict[str, tuple[str, ...]] = {
    "rows": get_args(RowKind),
    "on_undecodable": ("fail", "leave_out"),
    "replay_store": tuple(sorted(REPLAY_STORES)),
    "api": ("pubsub", "streaming"),
}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Validated options of a reader. Options of the storage may be secret, so they are excluded from ``repr``."""

    path: str = ""
    manifests: tuple[str, ...] = ()
    topics: tuple[Topic, ...] = ()
    subscription: str = "airflow"
    org: str | None = None
    rows: RowKind = "decoded"
    on_undecodable: str = "fail"
    verify_files: bool = True
    pushdown: bool = False
    max_events: int | None = None
    replay_store: str | None = None
    replay_store_conn_id: str = "sfstream_replay_store"
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_options(cls, given: Mapping[str, str]) -> Self:
        """Return the options of a reader.

        :param given: options by name, in any case, as Spark passes them.
        :raises ConfigurationError: if an option is missing, unknown or invalid; the error names it. Nothing was read.
        """
        values = {name.lower(): value for name, value in given.items()}
        storage = {name.removeprefix(STORAGE): values.pop(name) for name in [*values] if name.startswith(STORAGE)}
        remember_secrets(*storage.values())
        _check(values)
        api = values.pop("api", None)
        topics = tuple(Topic.parse(name, api) for name in _items("topic", values.pop("topic", "")))
        parsed: dict[str, Any] = {
            name: _PARSERS[name](name, text) if name in _PARSERS else text for name, text in values.items()
        }
        options = cls(topics=topics, storage={name: _plain(value) for name, value in storage.items()}, **parsed)
        _check_input(options.path, options.manifests, topics)
        return options


def _check(values: Mapping[str, str]) -> None:
    known = {"api", "topic", *(each.name for each in fields(SourceOptions))} - {"topics", "storage"}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise ConfigurationError(
            f"{quoted_setting(unknown[0])} is not an option of the source sfstream. The options are "
            f"{', '.join(sorted(known))}, and {STORAGE}NAME for options of the storage. Nothing was read."
        )
    for name, choices in _CHOICES.items():
        if values.get(name, choices[0]) not in choices:
            raise ConfigurationError(
                f"{name}={quoted_setting(values[name])} must be one of {', '.join(choices)}. Nothing was read."
            )


def _check_input(path: str, manifests: tuple[str, ...], topics: tuple[Topic, ...]) -> None:
    if any(has_credentials(url) for url in (path, *manifests)):
        raise ConfigurationError(
            f"A URL contains a password or a signature. Set the storage's credentials as options {STORAGE}NAME. "
            "Nothing was read."
        )
    if manifests and (path or topics):
        raise ConfigurationError("Set either path and topic, or manifests, not both. Nothing was read.")
    if not manifests and not (path and topics):
        raise ConfigurationError(
            "Set the data to read: load(landing URL) with the option topic, or the option manifests with the URLs of "
            "manifests. Nothing was read."
        )


def _items(name: str, text: str) -> tuple[str, ...]:
    """Return the items of a JSON array, or of a comma-separated list."""
    if text.lstrip().startswith("["):
        try:
            return tuple(str(item) for item in json.loads(text))
        except ValueError:
            raise ConfigurationError(f"{quoted_setting(text)} is not a JSON array. Nothing was read.") from None
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def _switch(name: str, text: str) -> bool:
    text = text.lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name}={quoted_setting(text)} must be true or false. Nothing was read.")
    return text == "true"


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ConfigurationError(f"{name}={quoted_setting(text)} must be a whole number above zero. Nothing was read.")
    return int(text)


_PARSERS = {"manifests": _items, "verify_files": _switch, "pushdown": _switch, "max_events": _count}


def _plain(value: str) -> Any:
    """Return a storage option in the form that fsspec accepts: parsed if it can only be JSON, otherwise text."""
    if value in ("true", "false") or value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
