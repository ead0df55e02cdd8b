"""The options that name a stream, as the operators call them, for every command that works on one.

Loaded for ``sfstream --help`` too: nothing here imports Airflow.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from airflow_provider_sfstream.replay_stores.base import PositionStoreKind, ReplayStoreKind
from airflow_provider_sfstream.salesforce.topics import Api

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs, in place of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal to ask on.")]
TopicArgument = Annotated[str, typer.Argument(help="A topic, such as /event/Order__e.", show_default=False)]
SalesforceConnId = Annotated[str, typer.Option(help="Airflow connection of the org.")]
ApiOption = Annotated[Api | None, typer.Option(help="The stream's API, as the drain has it.", show_default=False)]
LandingConnId = Annotated[str | None, typer.Option(help="Airflow connection of the landing.", show_default=False)]
_LANDING_URL = typer.Option(help="The landing.", envvar="SFSTREAM_LANDING_URL", show_default=False)
_STORE = typer.Option(help="As given to the drain.", envvar="SFSTREAM_REPLAY_STORE")
_TOPICS = typer.Argument(help="Topics, such as /event/Order__e.", show_default=False)


@dataclass(kw_only=True)
class _StreamOptions:
    salesforce_conn_id: SalesforceConnId = "salesforce_default"
    api: ApiOption = None
    subscription: Annotated[str, typer.Option(help="The stream's subscription.")] = "airflow"
    replay_store_conn_id: Annotated[str, typer.Option(help="Airflow connection of the table store.")] = (
        "sfstream_replay_store"
    )


@dataclass(kw_only=True)
class RecordedStreamOptions(_StreamOptions):
    """A stream, and the store that has its position."""

    topic: TopicArgument
    replay_store: Annotated[PositionStoreKind, _STORE] = "variable"


@dataclass(kw_only=True)
class _LandingOptions(_StreamOptions):
    landing_url: Annotated[str, _LANDING_URL]
    landing_conn_id: LandingConnId = None
    replay_store: Annotated[ReplayStoreKind, _STORE] = "variable"


@dataclass(kw_only=True)
class LandedStreamOptions(_LandingOptions):
    """A stream, its landing, and the store that has its position."""

    topic: TopicArgument


@dataclass(kw_only=True)
class LandedStreamsOptions(_LandingOptions):
    """Streams of one landing and one store."""

    topics: Annotated[list[str] | None, _TOPICS] = None


@dataclass(kw_only=True)
class PreflightOptions(_LandingOptions):
    """Options of later drains and Spark jobs."""

    topics: Annotated[list[str], _TOPICS]
    spark_conn_id: Annotated[str | None, typer.Option(help="Airflow connection of Spark; empty: no Spark jobs.")] = (
        "spark_default"
    )


def takes(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of a dataclass beside its own; it is given an instance first."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(options, include_extras=True)
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        shared = [_parameter(each, hints[each.name]) for each in fields(options)]

        @wraps(command)
        def with_options(**given: Any) -> None:
            names = options(**{each.name: given.pop(each.name) for each in shared})
            command(names, **given)

        parameters = [*own, *shared]
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return decorate


def _parameter(option: Field[Any], annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if option.default is MISSING else option.default
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def duration(text: str) -> timedelta:
    """Return the duration of a text: ``30d`` or ``36h``.

    :raises typer.BadParameter: if it is not a duration.
    """
    match = re.fullmatch(r"(\d{1,6})([dh])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration. Use days or hours, for example 30d or 36h.")
    return timedelta(**{"days" if match[2] == "d" else "hours": int(match[1])})
