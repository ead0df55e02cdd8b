"""Single steps of Airflow's DAG processor and scheduler, run by Airflow's code on a separate test database."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.assets.manager import AssetManager
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.asset import AssetDagRunQueue, AssetEvent, AssetModel, AssetWatcherModel
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.trigger import Trigger
from airflow.sdk import Asset
from airflow.serialization.definitions.assets import SerializedAssetUniqueKey
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import prohibit_commit
from airflow.utils.state import DagRunState
from sqlalchemy import func, select, update

from tests.support.airflow_database import BUNDLE
from tests.support.airflow_names import DagBag, sync_bag_to_db


def parse(path: Path) -> DagBag:
    """Parse a DAG file as the DAG processor does, and store its DAGs."""
    bag = DagBag(dag_folder=path, bundle_path=path.parent, bundle_name=BUNDLE)
    assert bag.import_errors == {}
    sync_bag_to_db(bag, BUNDLE, None)
    return bag


def pause(dag_id: str, *, paused: bool = True) -> None:
    """Pause or unpause a DAG, as the UI does."""
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=paused))


def watches() -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """Return the IDs and arguments of the triggers that the triggerer would run, by asset URI."""
    Trigger.clean_unused()
    with create_session() as session:
        rows = session.execute(
            select(AssetModel.uri, Trigger)
            .join(AssetWatcherModel, AssetWatcherModel.asset_id == AssetModel.id)
            .join(Trigger, Trigger.id == AssetWatcherModel.trigger_id)
        )
        found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for uri, trigger in rows:
            found.setdefault(uri, []).append((trigger.id, trigger.kwargs))
        return found


def asset_ids() -> dict[str, int]:
    """Return the row ID of each asset by URI; Airflow stores the asset's state under this ID."""
    with create_session() as session:
        return {asset.uri: asset.id for asset in session.scalars(select(AssetModel))}


def fire(trigger_id: int, payload: dict[str, Any]) -> None:
    """Store one event of a watcher, as the triggerer does."""
    Trigger.submit_event(trigger_id, TriggerEvent(payload))


def queued() -> list[str]:
    """Return the IDs of the DAGs with queued asset events, once for each asset."""
    with create_session() as session:
        return sorted(session.scalars(select(AssetDagRunQueue.target_dag_id)))


def schedule() -> None:
    """Create the due DAG runs, as the scheduler's loop does."""
    runner = SchedulerJobRunner(Job())
    with create_session() as session, prohibit_commit(session) as guard:
        runner._create_dagruns_for_dags(guard, session)


def runs(dag_id: str) -> list[DagRun]:
    """Return the DAG's runs, oldest first."""
    with create_session() as session:
        return list(session.scalars(select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.id)))


def end_runs(dag_id: str) -> None:
    """Set the state of all runs of the DAG to success."""
    with create_session() as session:
        session.execute(update(DagRun).where(DagRun.dag_id == dag_id).values(state=DagRunState.SUCCESS))


def emit(asset: Asset) -> None:
    """Store one event of an asset, as after a task with this outlet."""
    with create_session() as session:
        AssetManager.register_asset_change(asset=SerializedAssetUniqueKey(asset.name, asset.uri), session=session)


def last_event_at() -> datetime:
    """Return the time of the last stored asset event."""
    with create_session() as session:
        return session.scalars(select(func.max(AssetEvent.timestamp))).one()
