"""Check the requirements of drains and Spark jobs before the first one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_provider_sfstream.actions.arguments import DEFAULT_SUBSCRIPTION, is_template
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreHook
from airflow_provider_sfstream.replay_stores.kinds import REPLAY_STORES, ReplayStoreKind
from airflow_provider_sfstream.salesforce.topics import Topic


class SalesforcePreflightOperator(BaseOperator):
    """Check the requirements of a drain and its Spark jobs on the worker; fail if a check fails.

    The log has a line for each check: login, subscription and schema of each topic, with a warning of a login or API
    version that Salesforce retires; the difference of this machine's clock from Salesforce's; the remaining
    allocations; write access to the landing; read access to the replay store; ``spark-submit`` and the connection to
    its master. All checks run, also after a failed one. No event is read and no position moves; a small file is written
    to the landing and removed, and a new table store receives its tables.

    By default it is not retried.

    The XCom result is a list with a dict for each check: ``check``, ``works`` and ``result``.

    :param topics: a list of topics, as drains have them, or a template that becomes one with
        ``render_template_as_native_obj``. (templated)
    :param landing_url: the landing. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: as in the drains: ``"pubsub"``, ``"streaming"``, or ``None``.
    :param subscription: of the drains. (templated)
    :param landing_conn_id: Airflow connection of the landing. (templated)
    :param replay_store: as in the drains.
    :param replay_store_conn_id: as in the drains. (templated)
    :param spark_conn_id: Airflow connection of Spark; ``None``: there are no Spark jobs. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used; in the run, if a check fails.
    """

    template_fields: Sequence[str] = (
        "topics",
        "landing_url",
        "salesforce_conn_id",
        "subscription",
        "landing_conn_id",
        "replay_store_conn_id",
        "spark_conn_id",
    )
    ui_color = "#d8ecf8"

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        landing_url: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = DEFAULT_SUBSCRIPTION,
        landing_conn_id: str | None = None,
        replay_store: ReplayStoreKind = "variable",
        replay_store_conn_id: str = ReplayStoreHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("replay_store", replay_store, REPLAY_STORES)
        self.topics = topics
        self.landing_url = landing_url
        self.salesforce_conn_id = salesforce_conn_id
        self.api = api
        self.subscription = subscription
        self.landing_conn_id = landing_conn_id
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        self.spark_conn_id = spark_conn_id
        if not is_template(topics):
            for topic in self._topics_argument():
                if not is_template(topic):
                    Topic.parse(topic, api)

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Run all checks; return their results."""
        from airflow_provider_sfstream.actions.preflight import all_checks, run_checks

        with airflow_errors(self):
            topics = [Topic.parse(topic, self.api) for topic in self._topics_argument()]
            results = []
            for result in run_checks(all_checks(self, topics)):
                self.log.log(logging.INFO if result.works else logging.ERROR, "%s", result)
                results.append(result)
            failed = [result for result in results if not result.works]
            if failed:
                more = f" {len(failed) - 1} more failed checks are in the log." if len(failed) > 1 else ""
                raise ConfigurationError(f"{failed[0].check} failed: {failed[0].result.rstrip('.')}.{more}")
        return [asdict(result) for result in results]

    def _topics_argument(self) -> Sequence[str]:
        if isinstance(self.topics, str) or not self.topics:
            raise ConfigurationError("topics must be a list of topics, such as ['/event/Order__e']. Nothing was read.")
        return self.topics
