"""Files and connection of a new stream, for ``sfstream init``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import BaseHook

from airflow_provider_sfstream._airflow import AirflowNotFoundException, conf
from airflow_provider_sfstream.actions.failures import guide
from airflow_provider_sfstream.actions.storage import open_folder
from airflow_provider_sfstream.cli.output import InvalidUseError
from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
from airflow_provider_sfstream.salesforce.topics import Topic, slug

DEFAULT_LANDING_URL = f"{AIRFLOW_HOME}/sfstream/landing"
DEFAULT_DAG_FOLDER = conf.get("core", "dags_folder")
_WATCHDOG, _CHECK = "sfstream_watchdog", b"CheckSalesforceStreamsOperator"
_PACKAGE = Path(__file__).parents[1]


def missing_dag_files(topic: Topic, dag_folder: str) -> list[Path]:
    """Return the DAG files to write, each with the name of its DAG: that of the topic, like
    ``sfstream_event_Order__e``, and that of the watchdog unless there is one.
    """
    from airflow_provider_sfstream._airflow.database import create_session, existing_dags

    dag_id = f"sfstream_{re.sub(r'[^A-Za-z0-9_-]', '_', slug(topic.name))}"
    with create_session() as session:
        existing = existing_dags({dag_id, _WATCHDOG}, session)
    folder = Path(dag_folder).expanduser().absolute()
    path, watchdog = folder / f"{dag_id}.py", folder / f"{_WATCHDOG}.py"
    parent = next(each for each in (folder, *folder.parents) if each.exists())
    problem = ""
    if path.exists():
        problem = f"{path} exists. Delete it, or set another --dag-folder."
    elif dag_id in existing:
        problem = f"Airflow has a DAG {dag_id} already, from another file."
    elif not (parent.is_dir() and os.access(parent, os.W_OK)):
        problem = f"{folder} is not a folder that this user can write."
    if problem:
        raise InvalidUseError(f"{problem} Nothing was changed.")
    is_watched = watchdog.exists() or any(_CHECK in file.read_bytes() for file in folder.rglob("*.py"))
    return [path] if is_watched or _WATCHDOG in existing else [path, watchdog]


def checked_schedule(schedule: str) -> str:
    """Return a valid cron expression."""
    from croniter import croniter

    if not croniter.is_valid(schedule):
        raise InvalidUseError(f"{schedule!r} is not a cron expression like */15 * * * *. Nothing was changed.")
    return schedule


def checked_url(name: str, url: str) -> str:
    """Return the URL of the argument ``{name}_url``, or an absolute local path."""
    folder = open_folder(name, url, None)
    return url if "://" in url else folder.base


def connection_exists(conn_id: str) -> bool:
    """Return whether Airflow finds a connection, in any of its secrets backends."""
    if not re.fullmatch(r"[\w.-]{1,200}", conn_id):
        raise InvalidUseError(
            f"{conn_id!r} is not a connection ID: letters, digits, _ - and dots. Nothing was changed."
        )
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return False
    return True


def checked_extra(fields: Mapping[str, str | None]) -> str:
    """Return the Extra of a connection with client credentials. Errors and logs show none of its secrets."""
    credentials_from(fields)
    return json.dumps({name: value for name, value in fields.items() if value})


@contextmanager
def connection_of_this_process(conn_id: str, extra: str | None) -> Iterator[None]:
    """Let hooks use a connection that is not stored yet."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    if extra is not None:
        os.environ[variable] = json.dumps({"conn_type": "salesforce", "extra": extra})
    try:
        yield
    finally:
        if extra is not None:
            del os.environ[variable]


def store_connection(conn_id: str, extra: str) -> None:
    """Add a connection to Airflow's database, as ``airflow connections add`` does."""
    from airflow_provider_sfstream._airflow.database import Connection, create_session

    with create_session() as session:  # port 0: the Test button of Airflow 3.3 refuses a connection without a port
        session.add(Connection(conn_id=conn_id, conn_type="salesforce", port=0, extra=extra))


def is_replica(topic: Topic) -> bool:
    """Return whether the tables of a topic equal Salesforce objects, because it has change events."""
    return topic.name.startswith("/data/")


def dag_files(topic: Topic, paths: Sequence[Path], values: Mapping[str, str | None]) -> dict[Path, bytes]:
    """Return the contents of the files of :func:`missing_dag_files`.

    :param values: ``schedule``, ``salesforce_conn_id``, ``landing_url``, and ``output_url``, the tables, or ``None``.
    """
    from jinja2 import Template

    source = Path(__file__).with_name("stream_dag.py.jinja").read_text()
    texts = {**values, "topic": topic.name, "dag_id": paths[0].stem}
    # JSON text is a valid Python literal, also of quotes, backslashes and line breaks.
    literals = {name: text and json.dumps(text, ensure_ascii=False) for name, text in texts.items()}
    template = Template(source, trim_blocks=True, keep_trailing_newline=True)
    stream = template.render(literals, is_replica=is_replica(topic)).encode()
    # A checkout has the example DAGs beside the package.
    examples = next(each for each in (_PACKAGE / "example_dags", _PACKAGE.parent / "dags") if each.is_dir())
    return dict(zip(paths, (stream, (examples / f"{_WATCHDOG}.py").read_bytes()), strict=False))


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write new files. An existing one is an error."""
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)


def next_steps(paths: Sequence[Path], missing_conn_id: str | None) -> Iterator[str]:
    """Yield the commands after the files were written."""
    if missing_conn_id:
        extra = '{"login_url": "...", "consumer_key": "...", "consumer_secret": "..."}'
        yield "Create the connection in Airflow's UI, or with:"
        yield f"  airflow connections add {missing_conn_id} --conn-type salesforce --conn-port 0 --conn-extra '{extra}'"
    yield "Once Airflow lists the DAGs, by default within five minutes:"
    yield from (f"  airflow dags unpause {path.stem}" for path in paths)
    yield f"  airflow dags trigger {paths[0].stem}"
    yield "  sfstream status"
    yield "Airflow's UI shows the same status: Browse, Salesforce streams."
    if len(paths) > 1:
        yield f"The watchdog fails before events are lost: set an alert on it. {guide('operations.md#alerts')}"
