"""Config of a job that writes tables: the same object on a worker and on Spark, which receives it as JSON."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Self, get_args

from airflow_provider_sfstream.arguments import check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import FieldRules, Treatment

Deletes = Literal["soft", "hard"]
"""Treatment of a deleted record: its row is marked, or removed."""
MAX_ARGUMENT = 100_000
BATCH_BYTES, MAX_BATCH_BYTES = 12 << 20, 1 << 30
_UNSAFE = re.compile(r"[#?%\\\x00-\x1f\x7f]")
METRICS = "_sfstream/metrics"
"""Folder of the metrics of each task's last job, below the output folder."""


def check_characters(output_url: str) -> None:
    """Check the characters of the URL of an output folder.

    delta-rs writes a table to a folder with one of these characters in its name, and then looks for it in another one.

    :raises ConfigurationError: if it has an unsafe character. The error does not quote the URL, because a signature may
        follow ``?``.
    """
    if unsafe := _UNSAFE.search(output_url):
        raise ConfigurationError(
            f"output_url contains the character {unsafe[0]!r}. The folder of Delta tables must not have #, ?, %, a "
            "backslash or a control character in its name. Nothing was written. Use another folder."
        )


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """Arguments of all jobs.

    In JSON, an argument whose default is ``None`` must be text, or the text of a time: give a number a number as its
    default.

    :param output_url: folder of the tables, as a URL.
    :param metrics_url: URL of the file to which the job writes its metrics as JSON; ``None``: no file.
    :param job: name of the run in the history of the tables, and in the error of a job that conflicts with it; the ID
        of the Spark application if empty.
    :raises ConfigurationError: if an argument is invalid; the error names it. Nothing was written.
    """

    output_url: str
    metrics_url: str | None = None
    job: str = ""

    def __post_init__(self) -> None:
        check_characters(self.output_url)

    def to_json(self) -> str:
        """Return the config as JSON of ASCII characters: only values that differ from the defaults, without secrets.

        It is one flat object, because YARN replaces two braces in a row in an argument of a driver.
        """
        arguments = {each.name: (getattr(self, each.name), each.default) for each in fields(self) if each.repr}
        differing = {name: value for name, (value, default) in arguments.items() if value != default}
        return json.dumps(differing, default=datetime.isoformat)

    def metrics_json(self, metrics: Any) -> str:
        """Return the content of the file of metrics, a dataclass: with ``job``, which wrote them."""
        return json.dumps({**asdict(metrics), "job": self.job})

    def to_arguments(self) -> list[str]:
        """Return the JSON as arguments of a command. A long one is compressed: Linux accepts 128 KiB in an argument and
        2 MiB in total, which the manifests of 12,000 windows exceed."""
        text = self.to_json()
        if len(text) <= MAX_ARGUMENT:
            return [text]
        text = b64encode(zlib.compress(text.encode())).decode()
        return [text[i : i + MAX_ARGUMENT] for i in range(0, len(text), MAX_ARGUMENT)]

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> Self:
        """Return the config of arguments from :meth:`to_arguments`, or of JSON that a user wrote.

        :raises ConfigurationError: if it is not a JSON object with ``output_url``, or an argument is unknown or
            invalid. Nothing was written.
        """
        text = "".join(arguments)
        with suppress(ValueError, zlib.error):  # otherwise it is the JSON itself
            text = zlib.decompress(b64decode(text, validate=True)).decode()
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"The config of the job is not JSON: {error}. Nothing was written.") from None
        if not isinstance(document, dict) or not document.get("output_url"):
            raise ConfigurationError("The config of the job is not a JSON object with output_url. Nothing was written.")
        accepted = {each.name: each for each in fields(cls) if each.repr}
        if unknown := sorted(document.keys() - accepted.keys()):
            raise ConfigurationError(
                f"The job has no argument {unknown[0]}. It accepts {', '.join(accepted)}. Nothing was written."
            )
        return cls(**{name: _value(accepted[name], value) for name, value in document.items()})


def _value(argument: Field[Any], value: Any) -> Any:
    """Return the value of an argument from its JSON form."""
    if argument.type == "datetime | None":
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"{argument.name}={value!r} is not an ISO 8601 time. Nothing was written."
            ) from None
    value = tuple(value) if isinstance(value, list) else value
    kind = str if argument.default in (None, MISSING) else type(argument.default)
    accepted = {kind, int if kind is float else kind}  # isinstance would accept true as a whole number
    has_texts = not isinstance(value, tuple) or all(isinstance(item, str) for item in value)
    if not has_texts or type(value) not in accepted:
        raise ConfigurationError(f"{argument.name}={value!r} must be of the type {kind.__name__}. Nothing was written.")
    return value


@dataclass(frozen=True, kw_only=True)
class WindowsJobConfig(JobConfig):
    """Arguments of the jobs that read landed windows.

    :param manifests: URLs of the manifests of the windows, in any order.
    :param batch_bytes: most bytes of rows, with all their columns, that a task decodes, sends or merges at a time
        (default 12 MiB, at most 1 GiB). It affects memory and time, not the rows.
    :param verify_files: compare landed files with the SHA-256 of their manifest before anything is written.
    :param exclude_fields: names of fields that the tables do not have.
    :param mask_fields: names of fields whose values are masked.
    :param hash_fields: names of fields whose values are hashed.
    :param hash_key: key of the hashes. It is a secret: neither ``to_json`` nor ``repr`` has it.
    """

    manifests: tuple[str, ...] = ()
    batch_bytes: int = BATCH_BYTES
    verify_files: bool = True
    exclude_fields: Sequence[str] = ()
    mask_fields: Sequence[str] = ()
    hash_fields: Sequence[str] = ()
    hash_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(batch_bytes=self.batch_bytes)
        if self.batch_bytes > MAX_BATCH_BYTES:  # a column of an Arrow batch holds at most 2 GiB of text
            raise ConfigurationError(f"batch_bytes={self.batch_bytes} must be at most {MAX_BATCH_BYTES} (1 GiB).")
        rules = FieldRules.from_arguments(self.exclude_fields, self.mask_fields, self.hash_fields)
        for how in get_args(Treatment):
            object.__setattr__(self, f"{how}_fields", getattr(rules, how))

    @cached_property
    def rules(self) -> FieldRules:
        """Field protection rules, with the key of the hashes.

        :raises ConfigurationError: if there are fields to hash, and no key. Nothing was written.
        """
        return FieldRules.from_arguments(self.exclude_fields, self.mask_fields, self.hash_fields).with_key(
            self.hash_key
        )
