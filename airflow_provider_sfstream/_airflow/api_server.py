"""Logins and permissions of Airflow's API server."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view

__all__ = ["AccessView", "BaseUser", "GetUserDep", "SessionDep", "get_auth_manager", "requires_access_view"]


def of_team(team: str | None) -> dict[str, str]:
    """Return the team argument of an auth manager; Airflow 3.1 has neither the argument nor teams."""
    return {} if team is None else {"team_name": team}


def authorized_connections(manager: Any, conn_ids: set[str], user: Any, team: str | None) -> set[str]:
    """Return which of the connections of a team an auth manager lets a user read."""
    if hasattr(manager, "filter_authorized_connections"):
        allowed: set[str] = manager.filter_authorized_connections(conn_ids=conn_ids, user=user, **of_team(team))
        return allowed
    # The auth manager of Airflow 3.1 has no method for several connections.
    return {
        conn_id
        for conn_id in conn_ids
        if manager.is_authorized_connection(method="GET", details=ConnectionDetails(conn_id=conn_id), user=user)
    }
