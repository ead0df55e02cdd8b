"""Airflow's metadata database, in the API server and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.models.connection import Connection
from airflow.models.crypto import get_fernet
from airflow.models.dag import DagModel
from airflow.models.errors import ParseImportError
from airflow.models.variable import Variable
from airflow.utils.session import create_session

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session

__all__ = ["Connection", "Variable", "create_session", "get_fernet"]


def existing_dags(dag_ids: Collection[str], session: Session) -> dict[str, bool]:
    """Return those of the DAGs that Airflow has, and whether it allows backfills of them, in the API server.

    Airflow marks a DAG as stale if its file no longer defines it; one whose file cannot be imported counts as existing.
    """
    from sqlalchemy import and_, or_, select

    same_file = and_(
        ParseImportError.bundle_name == DagModel.bundle_name, ParseImportError.filename == DagModel.relative_fileloc
    )
    is_broken = select(ParseImportError.id).where(same_file).exists()
    query = select(DagModel).where(DagModel.dag_id.in_(dag_ids), or_(~DagModel.is_stale, is_broken))
    return {dag.dag_id: _allows_backfills(dag) for dag in session.scalars(query)}


def _allows_backfills(dag: Any) -> bool:
    run_types = getattr(dag, "allowed_run_types", None)
    has_periods = dag.timetable_summary is not None and dag.asset_expression is None
    is_periodic = getattr(dag, "timetable_periodic", has_periods)  # Airflow 3.1 has neither
    return bool(is_periodic) and (run_types is None or "backfill" in run_types)


def dag_teams(dag_ids: Collection[str], session: Session) -> dict[str, str | None]:
    """Return the team of each DAG, in the API server; empty before Airflow 3.2."""
    teams = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    return {} if teams is None else teams(list(dag_ids), session=session)


def connection_teams(conn_ids: Collection[str], session: Session) -> dict[str, str | None]:
    """Return the team of each connection, in the API server; empty before Airflow 3.2."""
    teams = getattr(Connection, "get_conn_id_to_team_name_mapping", None)
    return {} if teams is None else teams(list(conn_ids), session=session)
