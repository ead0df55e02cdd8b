"""Commands that change data. Those that change positions or windows show their effect, ask for confirmation, and write
the operator's audit record."""

from __future__ import annotations

import getpass
import socket
from datetime import timedelta
from typing import Annotated, Any, Literal

import typer

from airflow_provider_sfstream.cli.options import (
    AsJson,
    LandedStreamOptions,
    RecordedStreamOptions,
    Yes,
    duration,
    takes,
)
from airflow_provider_sfstream.cli.output import FAILED, InvalidUseError, ask, progress, show_json, show_rows


@takes(RecordedStreamOptions)
def reset(
    names: RecordedStreamOptions,
    reason: Annotated[str, typer.Option(help="Reason, for the audit record.", show_default=False)],
    replay_id: Annotated[
        str | None, typer.Option(help="The new position (hex text), after which drains begin.", show_default=False)
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove the position: the next drain begins at its start_from.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Set a stream's position to a replay ID, or remove it. A later ID skips events permanently; an earlier one lands
    events twice."""
    from airflow_provider_sfstream.actions.stream_maintenance import reset_position

    if (replay_id is None) != forget:
        raise InvalidUseError("Set either --replay-id or --forget. Nothing was changed.")
    change = "remove its position" if replay_id is None else f"set its position to {replay_id}"
    ask(f"{names.topic}, subscription {names.subscription}, replay store {names.replay_store}: {change}?", yes=yes)
    _show_record(reset_position(names, replay_id, reason=reason, reset_by=_user("reset")), as_json)


@takes(LandedStreamOptions)
def restore(
    names: LandedStreamOptions,
    last_window_id: Annotated[
        str | None, typer.Option(help="The last window to record; by default the newest.", show_default=False)
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Record the landed windows that the replay store lost, and move the position to the end of the last window."""
    from airflow_provider_sfstream.actions.landed_stream import open_landed_stream
    from airflow_provider_sfstream.actions.stream_maintenance import restore_position

    landed = open_landed_stream(names)
    ask(
        f"{landed.stream}: the replay store has {landed.position()}. Record the windows of {names.landing_url} in it? "
        "Pause the DAGs that drain the stream first.",
        yes=yes,
    )
    with progress("Restoring"):
        audit_record = restore_position(landed, last_window_id, restored_by=_user("restore"))
    _show_record(audit_record, as_json)


_Urls = Annotated[list[str] | None, typer.Option(help="The output_url of a reader of the stream; may be repeated.")]


@takes(LandedStreamOptions)
def prune(
    names: LandedStreamOptions,
    older_than: Annotated[
        timedelta, typer.Option(parser=duration, help="Only windows that finished longer ago than this, such as 30d.")
    ],
    replica_urls: _Urls = None,
    event_log_urls: _Urls = None,
    no_readers: Annotated[
        bool, typer.Option("--no-readers", help="No replica and no event log reads the stream.")
    ] = False,
    output_conn_id: Annotated[str | None, typer.Option(help="Airflow connection of those folders.")] = None,
    keep_last: Annotated[int, typer.Option(help="Number of newest windows that are not removed.", min=1)] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the windows that would be removed, and remove none.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove old landed windows. They cannot be restored."""
    from airflow_provider_sfstream.actions.landed_stream import open_landed_stream
    from airflow_provider_sfstream.actions.stream_maintenance import prune_windows
    from airflow_provider_sfstream.salesforce.topics import check_age

    if no_readers == bool(replica_urls or event_log_urls):
        raise InvalidUseError(
            "Set the readers of the stream with --replica-urls and --event-log-urls, or set --no-readers: windows that "
            "a reader has not read yet are not removed. Nothing was removed."
        )
    check_age(older_than)
    landed, user = open_landed_stream(names), _user("prune")

    def prune_or_list(*, dry_run: bool) -> dict[str, Any]:
        with progress("Reading windows" if dry_run else "Removing windows"):
            return prune_windows(
                landed,
                older_than=older_than,
                replica_urls=replica_urls or (),
                event_log_urls=event_log_urls or (),
                output_conn_id=output_conn_id,
                keep_last=keep_last,
                dry_run=dry_run,
                pruned_by=user,
            )

    preview = prune_or_list(dry_run=True)
    if dry_run or not preview["windows"]:
        _show_record(preview, as_json)
        return
    question = "{windows} windows with {events} events, {bytes} bytes, {first_window} to {last_window}"
    ask(f"{landed.stream}: remove {question.format(**preview)}?", yes=yes)
    _show_record(prune_or_list(dry_run=False), as_json)


def forget(
    stream: Annotated[str, typer.Argument(help="URI of a stream, or its topic; or URL of tables.", show_default=False)],
    yes: Yes = False,
) -> None:
    """Remove a stream, or a folder of tables, from the streams page: delete its stored status. Positions, windows and
    tables stay. A later task stores a new status."""
    from contextlib import closing

    from airflow_provider_sfstream._airflow.database import create_session
    from airflow_provider_sfstream.hooks.replay_store import open_status_store
    from airflow_provider_sfstream.plugins.page.loading import read_statuses, subjects_named

    with create_session() as session:
        subjects = subjects_named(stream, read_statuses(session).statuses)
    if len(subjects) != 1:
        found = f"Name one of these: {', '.join(subjects)}." if subjects else "See the uri of `sfstream status --json`."
        raise InvalidUseError(f"{len(subjects)} streams or folders with a status are named {stream!r}. {found}")
    ask(f"{subjects[0]}: delete its stored status?", yes=yes)
    with closing(open_status_store()) as store:
        deleted = store.forget(subjects[0])
    typer.echo(f"{subjects[0]}: {deleted} status documents deleted.", err=True)


def catalog(
    action: Annotated[Literal["status", "sync"], typer.Argument(help="Compare only, or also repair.")],
    output_url: Annotated[str, typer.Argument(help="The output_url of the tables.", show_default=False)],
    catalog_conn_id: Annotated[str, typer.Option(help="Airflow connection of the Iceberg catalog.")],
    catalog_namespace: Annotated[str, typer.Option(help="Namespace of the tables.")] = "salesforce",
    output_conn_id: Annotated[str | None, typer.Option(help="Airflow connection of the folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare tables with their Iceberg tables in a catalog (`status`), or publish them there (`sync`), also tables
    that no job has published yet. The columns show the state before. `status` fails if a table is not up to date, and
    both fail if the folder has no table."""
    from airflow_provider_sfstream.actions.tables.iceberg_catalog import catalog_tables

    is_sync = action == "sync"
    with progress("Comparing tables"):
        rows = list(catalog_tables(output_url, output_conn_id, catalog_conn_id, catalog_namespace, sync=is_sync))
    columns = {
        "table": "Table",
        "is_current": "Up to date",
        "delta_version": "Delta version",
        "mirrored_version": "In the catalog",
        "missing_files": "Missing files",
        "removed_files": "Removed files",
        "error": "Error",
    }
    show_rows(rows, columns, as_json=as_json, none=f"{output_url} has no tables.")
    if not rows or any(row["error"] or not (is_sync or row["is_current"]) for row in rows):
        raise typer.Exit(FAILED)


def _show_record(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(record)
        return
    rows = [{"name": name.replace("_", " "), "value": value} for name, value in record.items() if name != "stream"]
    show_rows(rows, {"name": "Name", "value": "Value"}, as_json=False, none="")


def _user(command: str) -> str:
    """Return the user for the audit record, in which a task names its run."""
    return f"{getpass.getuser()} on {socket.gethostname()}, sfstream {command}"


COMMANDS = (reset, restore, prune, forget, catalog)
