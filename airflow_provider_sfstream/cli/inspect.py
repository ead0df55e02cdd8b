"""Commands that change no data. They import inside their functions, so that ``sfstream --help`` loads no Airflow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from airflow_provider_sfstream.cli.options import (
    ApiOption,
    AsJson,
    LandedStreamOptions,
    LandedStreamsOptions,
    LandingConnId,
    PreflightOptions,
    SalesforceConnId,
    TopicArgument,
    duration,
    takes,
)
from airflow_provider_sfstream.cli.output import FAILED, progress, show_json, show_line, show_rows


def topics(salesforce_conn_id: SalesforceConnId = "salesforce_default", as_json: AsJson = False) -> None:
    """List the topics of the org that the connection's user sees."""
    from airflow_provider_sfstream.hooks.event_topics import EventTopicHook

    with progress("Reading the org's topics"):
        visible = EventTopicHook(salesforce_conn_id).all()
    rows = [vars(topic) for topic in visible.topics]
    none = "No topic could be listed." if visible.unseen else "The user sees no topic of the org."
    show_rows(rows, {"topic": "Topic", "events": "Events"}, as_json=as_json, none=none)
    for unread in visible.unseen:
        typer.echo(f"Not read: {unread}", err=True)


def peek(
    topic: TopicArgument,
    salesforce_conn_id: SalesforceConnId = "salesforce_default",
    api: ApiOption = None,
    start_from: Annotated[
        str, typer.Option(help="Start: earliest, latest, or after a replay ID (hex text).")
    ] = "earliest",
    max_events: Annotated[int, typer.Option(help="Maximum number of events; each counts as delivered.", min=1)] = 10,
    max_seconds: Annotated[float, typer.Option(help="Maximum wait in seconds.", min=0.1)] = 60.0,
    idle_timeout: Annotated[float, typer.Option(help="End after this many seconds without an event.", min=0.1)] = 10.0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue without limits until Ctrl-C.")] = False,
) -> None:
    """Show events of a topic, decoded, as one line of JSON each. No position moves, nothing is landed."""
    from airflow_provider_sfstream.cli.records import FOLLOWING, peeked_rows
    from airflow_provider_sfstream.streams.drain.limits import DrainLimits

    limits = DrainLimits(max_events=max_events, max_seconds=max_seconds, idle_timeout=idle_timeout)
    count = 0
    for row in peeked_rows(topic, api, salesforce_conn_id, start_from, FOLLOWING if follow else limits, follow=follow):
        show_line(row)
        count += 1
    if not count:
        typer.echo(f"Received no event of {topic}.", err=True)


@takes(LandedStreamsOptions)
def positions(names: LandedStreamsOptions, as_json: AsJson = False) -> None:
    """Show the positions of streams: the last stored replay ID, and its evidence from Salesforce."""
    from airflow_provider_sfstream.cli.records import position_rows

    columns = {
        "topic": "Topic",
        "subscription": "Subscription",
        "replay_id": "Replay ID",
        "replay_store": "Replay store",
        "updated_at": "Updated",
        "contact_at": "Salesforce answered",
        "confirmed_at": "End confirmed",
        "certainty": "Certainty",
        "updated_by": "Updated by",
    }
    none = "The landing has no windows. To show positions without windows, name their topics."
    show_rows(position_rows(names), columns, as_json=as_json, none=none)


@takes(LandedStreamOptions)
def windows(
    names: LandedStreamOptions,
    since: Annotated[timedelta, typer.Option(parser=duration, help="Only runs due in this time, such as 36h.")] = "3d",  # type: ignore[assignment]
    as_json: AsJson = False,
) -> None:
    """List the landed windows of a stream, oldest first."""
    from airflow_provider_sfstream.actions.landed_stream import open_landed_stream
    from airflow_provider_sfstream.cli.records import window_row

    landed, now = open_landed_stream(names), datetime.now(UTC)
    with progress("Reading manifests"):
        manifests = landed.catalog.windows_between(landed.stream, (now - since).date(), now.date())
    columns = {
        "window_id": "Window",
        "kind": "Kind",
        "through": "Through",
        "event_count": "Events",
        "payload_bytes": "Bytes",
        "first_event_time": "First event",
        "last_event_time": "Last event",
        "covered_until": "Complete until",
        "stop_reason": "Ended by",
        "gap": "After a gap",
    }
    rows = [window_row(manifest) for manifest in manifests]
    none = f"{landed.stream} has no windows of runs that were due in this time."
    show_rows(rows, columns, as_json=as_json, none=none)


@takes(LandedStreamOptions)
def gaps(names: LandedStreamOptions, as_json: AsJson = False) -> None:
    """List the gaps of a stream: events that were lost, or may have been lost."""
    from airflow_provider_sfstream.actions.landed_stream import open_landed_stream
    from airflow_provider_sfstream.landing.documents import to_document
    from airflow_provider_sfstream.monitoring.status import gap_loss
    from airflow_provider_sfstream.replay_windows.lost_positions import listed_losses

    landed = open_landed_stream(names)
    rows = [{**to_document(gap), "loss": gap_loss(gap)} for gap in listed_losses(landed.store.gaps(landed.stream))]
    columns = {
        "loss": "Loss",
        "since": "Since",
        "detected_at": "Detected",
        "after": "After",
        "resumed_at": "Until",
        "reason": "Reason",
    }
    show_rows(rows, columns, as_json=as_json, none=f"No gap of {landed.stream} is recorded.")


def decode(
    manifests: Annotated[list[str], typer.Argument(help="URLs of manifests, from `windows --json`.")],
    landing_conn_id: LandingConnId = None,
) -> None:
    """Show the events of landed windows, decoded as in the event log, as one line of JSON each."""
    from airflow_provider_sfstream.cli.records import decoded_rows

    with progress("Decoding", len(manifests)) as step:
        for manifest in manifests:
            for row in decoded_rows(manifest, landing_conn_id):
                show_line(row)
            step()


@takes(PreflightOptions)
def preflight(names: PreflightOptions, as_json: AsJson = False) -> None:
    """Check all requirements of drains and Spark jobs on this machine; fail if one is not met."""
    from dataclasses import asdict

    from airflow_provider_sfstream.actions.preflight import all_checks, run_checks
    from airflow_provider_sfstream.salesforce.topics import Topic

    checks = all_checks(names, [Topic.parse(topic, names.api) for topic in names.topics])
    results = []
    with progress("Checking", len(checks)) as step:
        for result in run_checks(checks):
            results.append(result)
            step()
    columns = {"check": "Check", "works": "Works", "result": "Result"}
    show_rows([asdict(result) for result in results], columns, as_json=as_json, none="")
    if not all(result.works for result in results):
        raise typer.Exit(FAILED)


def status(
    dag_id: Annotated[
        str | None, typer.Option(help="Only streams with a status of a task of this DAG.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the streams page as text: every stream, the worst first, with the time until unread events expire."""
    from airflow_provider_sfstream._airflow.database import create_session, existing_dags
    from airflow_provider_sfstream.plugins.page.loading import all_dag_ids, read_statuses
    from airflow_provider_sfstream.plugins.page.overview import overview

    with create_session() as session:
        loaded = read_statuses(session)
        dags = existing_dags(all_dag_ids(loaded.statuses), session)
    now = datetime.now(UTC)
    document = overview(loaded.statuses, now, dag_id, existing_dags=dags)
    if loaded.unreadable:
        typer.echo(f"{loaded.unreadable} statuses cannot be read and are not shown.", err=True)
    if as_json:
        show_json(document)
        return
    from airflow_provider_sfstream.cli.records import status_columns, status_row

    if document["banner"]:
        typer.echo("{text}. {note}\n".format(**document["banner"]))
    rows = [status_row(stream, now) for stream in document["streams"]]
    show_rows(rows, status_columns(rows), as_json=False, none="No task has stored a status of a stream.")
    for row in rows:
        for concern in row["concerns"]:
            typer.echo(f"{row['topic']}: {concern['text']}.")


COMMANDS = (topics, peek, positions, windows, gaps, decode, preflight, status)
