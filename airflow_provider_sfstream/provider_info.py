"""What Airflow discovers of this package. Loaded in every Airflow process, so it imports nothing."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-sfstream",
        "name": "Salesforce Event Streams",
        "description": "Drain Salesforce platform events and change events into your lake, in replay windows.",
    }
