"""What sensors do about an error before they defer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import BaseSensorOperator


@contextmanager
def soft_failing(sensor: BaseSensorOperator) -> Iterator[None]:
    """Do for an error before deferral what Airflow's sensors do for one after it, or in a look."""
    try:
        yield
    except AirflowFailException as error:
        if sensor.soft_fail or sensor.never_fail:
            raise AirflowSkipException(f"Skipping, because soft_fail or never_fail is set: {error}") from error
        raise
