"""Default retries of operators and sensors that are safe to retry."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_sfstream._airflow import conf

_CONFIGURED = conf.getint("core", "default_task_retries", fallback=0)
# The airflow.cfg that Airflow generates has a 0, so only the environment shows that somebody chose 0.
_IS_CONFIGURED = _CONFIGURED != 0 or "AIRFLOW__CORE__DEFAULT_TASK_RETRIES" in os.environ
_AIRFLOWS_BACKOFF = BaseOperator.retry_exponential_backoff  # a bool in Airflow 3.1, a multiplier in later versions
_RETRIES = _CONFIGURED if _IS_CONFIGURED else 3
_BACKOFF = _AIRFLOWS_BACKOFF if _IS_CONFIGURED else type(_AIRFLOWS_BACKOFF)(2)


class RetriedOperator(BaseOperator):
    """Base of tasks that retry three times with exponential backoff by default.

    The task's arguments, ``default_args`` and Airflow's ``[core] default_task_retries`` take precedence, in this order.
    """

    # Airflow 3.3 reads these defaults also for mapped tasks.
    def __init__(
        self, *, retries: int | None = _RETRIES, retry_exponential_backoff: float = _BACKOFF, **kwargs: Any
    ) -> None:
        super().__init__(retries=retries, retry_exponential_backoff=retry_exponential_backoff, **kwargs)
