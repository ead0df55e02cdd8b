"""How long landed windows are needed by drains themselves. Apart, so that parsing a DAG loads nothing else."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_sfstream.exceptions import ConfigurationError

LEAST_AGE = timedelta(days=4)
"""How long every window stays: Salesforce keeps events for 72 hours, and drains look back so far to tell what is lost
from what is quiet. One day more is for clocks, grace and late retries."""


def check_age(older_than: timedelta) -> None:
    """Refuse an age at which drains and backfills may still need windows.

    :raises ConfigurationError: if it is below :data:`LEAST_AGE`.
    """
    if not isinstance(older_than, timedelta) or older_than < LEAST_AGE:
        raise ConfigurationError(
            f"older_than={older_than!r} must be a timedelta of at least {LEAST_AGE.days} days: until then drains look "
            "back at windows to tell what was lost from what was quiet. Nothing was removed."
        )
