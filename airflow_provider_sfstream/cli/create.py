"""The command that writes the first DAGs of a topic. It imports inside its functions, as the other commands do."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider_sfstream.cli.options import takes
from airflow_provider_sfstream.cli.output import FAILED, InvalidUseError, ask

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.topics import Topic

_SECRET = "SFSTREAM_CONSUMER_SECRET"  # noqa: S105 (the name of an environment variable)
_TABLES = "Write tables too: replicas of change events, an event log of other events; default: yes."
_STORE = "Store a missing connection in Airflow's database; default: yes."
_TEST = "Log in and test the topic before anything is stored; default: yes."


def _option(text: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=text, show_default=False, **settings)


@dataclass(kw_only=True)
class InitOptions:
    """Answers in advance; ``None`` is a question."""

    topic: Annotated[str | None, typer.Argument(help="A topic, for example /event/Order__e.", show_default=False)] = (
        None
    )
    dag_folder: Annotated[str | None, _option("Folder of the DAG files; default: Airflow's dags_folder.")] = None
    schedule: Annotated[str | None, _option("Cron expression, in UTC; default: every 15 minutes.")] = None
    landing_url: Annotated[
        str | None,
        _option("URL of the landing; default: sfstream/landing in AIRFLOW_HOME.", envvar="SFSTREAM_LANDING_URL"),
    ] = None
    tables: Annotated[bool | None, _option(_TABLES, "--tables/--no-tables")] = None
    output_url: Annotated[str | None, _option("URL of the tables; default: tables beside the landing.")] = None
    salesforce_conn_id: Annotated[
        str | None, _option("Airflow connection of the org; default: salesforce_default.")
    ] = None
    store_connection: Annotated[bool | None, _option(_STORE, "--store-connection/--no-store-connection")] = None
    login_url: Annotated[str | None, _option("Login URL of a new connection: the org's My Domain.")] = None
    consumer_key: Annotated[str | None, _option("Consumer key of a new connection.")] = None
    pubsub_endpoint: Annotated[str | None, _option("Pub/Sub API endpoint of a new connection.")] = None
    test: Annotated[bool | None, _option(_TEST, "--test/--no-test")] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: missing options have their defaults.")] = False

    @property
    def can_ask(self) -> bool:
        """Return whether questions can be answered here."""
        return not self.yes and sys.stdin.isatty()

    def answer(self, name: str, question: str, default: Any = None) -> Any:
        """Return the value of an option, the answer to its question, or its default."""
        value = getattr(self, name)
        if value is None and self.can_ask:
            ask_for = typer.confirm if isinstance(default, bool) else typer.prompt
            return ask_for(question, default, err=True)
        if value is None and default is None:
            shown = name.upper() if name == "topic" else f"--{name.replace('_', '-')}"
            raise InvalidUseError(
                f"{question}: set {shown}, or answer on a terminal without --yes. Nothing was changed."
            )
        return default if value is None else value

    def consumer_secret(self) -> str:
        """Return the secret from the environment, or typed without echo."""
        if secret := os.environ.get(_SECRET):
            return secret
        if not self.can_ask:
            raise InvalidUseError(f"Consumer secret: set {_SECRET} in the environment. Nothing was changed.")
        return str(typer.prompt("Consumer secret (not shown)", hide_input=True, err=True))


@takes(InitOptions)
def init(names: InitOptions) -> None:
    """Write a DAG that drains a topic, and the watchdog DAG; store a connection if it does not exist.

    Asks for each missing option, shows the changes, and asks for confirmation. Changes no existing file or connection.
    A new connection has the login flow of client credentials. Its consumer secret is typed without echo, or read from
    the environment variable SFSTREAM_CONSUMER_SECRET.
    """
    from airflow_provider_sfstream.cli import new_stream as new
    from airflow_provider_sfstream.salesforce.topics import Topic

    topic = Topic.parse(names.answer("topic", "Topic, for example /event/Order__e"))
    paths = new.missing_dag_files(topic, names.answer("dag_folder", "DAG folder", new.DEFAULT_DAG_FOLDER))
    schedule = new.checked_schedule(names.answer("schedule", "Schedule (cron, UTC)", "*/15 * * * *"))
    landing_url = new.checked_url("landing", names.answer("landing_url", "URL of the landing", new.DEFAULT_LANDING_URL))
    output_url = None
    if names.answer("tables", f"Write tables ({'replica' if new.is_replica(topic) else 'event log'})?", True):
        beside = f"{landing_url.removesuffix('/landing')}/tables"
        output_url = new.checked_url("output", names.answer("output_url", "URL of the tables", beside))
    conn_id = names.answer("salesforce_conn_id", "Airflow connection of the org", "salesforce_default")
    exists = new.connection_exists(conn_id)
    extra = None if exists else _extra(names, conn_id)
    is_tested = (exists or extra) and names.answer("test", "Log in and test the topic first?", True)
    values = {"schedule": schedule, "landing_url": landing_url, "output_url": output_url, "salesforce_conn_id": conn_id}
    files = new.dag_files(topic, paths, values)
    for line in (
        *(f"New DAG     {path}" for path in paths),
        *(["Watchdog    exists, unchanged"] if len(paths) == 1 else []),
        f"Connection  {conn_id}: {'exists, unchanged' if exists else 'new' if extra else 'missing, not created'}",
        f"Test        {'login and topic, first' if is_tested else 'none'}",
        f"Schedule    {schedule}",
        f"Landing     {landing_url}",
        f"Tables      {output_url or 'none'}",
    ):
        typer.echo(line, err=True)
    ask("Continue?", yes=names.yes)
    with new.connection_of_this_process(conn_id, extra):
        if is_tested:
            _test(names, topic, conn_id)
    if extra:
        new.store_connection(conn_id, extra)
        typer.echo(f"Stored the connection {conn_id}")
    new.write_files(files)
    for line in (*(f"Wrote {path}" for path in paths), *new.next_steps(paths, None if exists or extra else conn_id)):
        typer.echo(line)


def _test(names: InitOptions, topic: Topic, conn_id: str) -> None:
    """Test login and topic. After a failure, end the command, unless the user continues."""
    from airflow_provider_sfstream.cli.output import progress
    from airflow_provider_sfstream.hooks.event_topics import event_hook

    with progress("Testing the connection"):
        works, text = event_hook(topic.api, conn_id).test_connection(topic.name)
    typer.echo(f"{'Works' if works else 'Failed'}: {text}", err=True)
    if not works:
        if not names.can_ask:
            typer.echo("Nothing was changed. Correct the failure, or set --no-test.", err=True)
            raise typer.Exit(FAILED)
        ask("The test failed. Continue without it?", yes=False)


def _extra(names: InitOptions, conn_id: str) -> str | None:
    """Return the Extra of a new connection; ``None`` if the user does not want to store it."""
    from airflow_provider_sfstream.cli.new_stream import checked_extra

    question = f"The connection {conn_id} does not exist. Store a new one in Airflow's database?"
    if not names.answer("store_connection", question, True):
        return None
    fields = {
        "login_url": names.answer("login_url", "Login URL, for example https://mycompany.my.salesforce.com"),
        "consumer_key": names.answer("consumer_key", "Consumer key of the external client app"),
        "consumer_secret": names.consumer_secret(),
        "pubsub_endpoint": names.pubsub_endpoint,
    }
    return checked_extra(fields)


COMMANDS = (init,)
