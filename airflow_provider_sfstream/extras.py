"""Extras of the distribution: the modules that a part of the package needs and that a plain install lacks."""

from __future__ import annotations

from importlib.util import find_spec

_TABLES = ("deltalake", "numpy")
MODULES = {
    "iceberg": ("pyiceberg", *_TABLES),
    "messaging": ("airflow.providers.common.messaging.providers.base_provider",),
    "salesforce": ("simple_salesforce",),
    "spark": ("airflow.providers.apache.spark", *_TABLES),
    "streaming": ("aiosfstream", "aiocometd", "aiohttp"),
    "tables": _TABLES,
}
"""Modules of each extra. ``spark`` omits ``pyspark``: a cluster's own Spark replaces it."""


def require_extra(extra: str) -> None:
    """Check that the modules of an extra exist, without importing them.

    Airflow only logs the error of a class that a provider lists, and shows that of a DAG file as its import error.

    :raises MissingExtraError: naming the first missing module, and the command that installs the extra.
    """
    for module in MODULES[extra]:
        if not _exists(module):
            from airflow_provider_sfstream._airflow import MissingExtraError

            raise MissingExtraError(
                f"The module {module} is missing: pip install 'airflow-provider-sfstream[{extra}]'."
            )


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
