"""What a user of Airflow may read, by its auth manager."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager

from airflow_provider_sfstream._airflow import authorized_connections, connection_teams, dag_teams, of_team
from airflow_provider_sfstream.monitoring.status import Status, connection_of
from airflow_provider_sfstream.plugins.page.reader import Reader, all_dag_ids

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session


def reader_of(user: BaseUser, statuses: Iterable[Status], session: Session) -> Reader:
    """Return which of the DAGs and connections that documents name a user may read.

    Only these are asked for: an Airflow can have thousands of others. Of a DAG that is gone, and of a connection that
    is kept elsewhere than in the database, Airflow knows no team.
    """
    statuses = list(statuses)
    manager: Any = get_auth_manager()
    dag_ids = all_dag_ids(statuses)
    teams = dag_teams(dag_ids, session)
    dags = _allowed(
        dag_ids, teams, lambda ids, team: manager.filter_authorized_dag_ids(dag_ids=ids, user=user, **of_team(team))
    )
    connections = {each for status in statuses if (each := connection_of(status.subject)) is not None}
    teams = connection_teams(connections, session)
    allowed = _allowed(
        connections,
        teams,
        lambda ids, team: authorized_connections(manager, ids, user, team),
    )
    return Reader(dags, allowed)


def _allowed(
    names: set[str], teams: dict[str, str | None], ask: Callable[[set[str], str | None], set[str]]
) -> frozenset[str]:
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for name in names:
        by_team[teams.get(name)].add(name)
    return frozenset().union(*(ask(of_team, team) for team, of_team in by_team.items()))
