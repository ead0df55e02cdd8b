"""Options of the commands that name a stream, with the names of the operators' arguments.

``sfstream --help`` loads this module too, so it does not import Airflow.
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

from airflow_provider_sfstream.replay_stores.kinds import PositionStoreKind, ReplayStoreKind
from airflow_provider_sfstream.salesforce.topics import Api

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. Required without a terminal.")]
TopicArgument = Annotated[str, typer.Argument(help="A topic, such as /event/Order__e.", show_default=False)]
SalesforceConnId = Annotated[str, typer.Option(help="Airflow connection of the org.")]
ApiOption = Annotated[Api | None, typer.Option(help="The stream's API, as in the drain.", show_default=False)]
LandingConnId = Annotated[str | None, typer.Option(help="Airflow connection of the landing.", show_default=False)]
_LANDING_URL = typer.Option(help="URL of the landing.", envvar="SFSTREAM_LANDING_URL", show_default=False)
_STORE = typer.Option(help="The replay store, as in the drain.", envvar="SFSTREAM_REPLAY_STORE")
_ANY_STORE = typer.Option(
    help="Only positions of this replay store; default: of each.", envvar="SFSTREAM_REPLAY_STORE", show_default=False
)
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


@dataclass(kw_only=True)
class LandedStreamOptions(_LandingOptions):
    """A stream, its landing, and the store that has its position."""

    topic: TopicArgument
    replay_store: Annotated[ReplayStoreKind, _STORE] = "variable"


@dataclass(kw_only=True)
class LandedStreamsOptions(_LandingOptions):
    """Streams of one landing, and the store that has their positions, or all stores."""

    topics: Annotated[list[str] | None, _TOPICS] = None
    replay_store: Annotated[ReplayStoreKind | None, _ANY_STORE] = None


@dataclass(kw_only=True)
class PreflightOptions(_LandingOptions):
    """Options of later drains and Spark jobs."""

    topics: Annotated[list[str], _TOPICS]
    replay_store: Annotated[ReplayStoreKind, _STORE] = "variable"
    spark_conn_id: Annotated[str | None, typer.Option(help="Airflow connection of Spark; empty: no Spark jobs.")] = (
        "spark_default"
    )


def takes(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a dataclass to a command, whose first argument is then an instance of it."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(options, include_extras=True)
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        shared = [_parameter(option, hints[option.name]) for option in fields(options)]

        @wraps(command)
        def with_options(**values: Any) -> None:
            names = options(**{parameter.name: values.pop(parameter.name) for parameter in shared})
            command(names, **values)

        parameters = [*own, *shared]
        # typer reads the options from the signature and the annotations of the function.
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_options

    return decorate


def _parameter(option: Field[Any], annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if option.default is MISSING else option.default
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def duration(text: str) -> timedelta:
    """Return the duration of a text: ``30d`` or ``36h``."""
    match = re.fullmatch(r"(\d{1,6})([dh])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration. Use days or hours, for example 30d or 36h.")
    return timedelta(**{"days" if match[2] == "d" else "hours": int(match[1])})
