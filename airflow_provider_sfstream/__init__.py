"""Salesforce event streams in Airflow: drain bounded replay windows, record replay IDs, hand windows to Spark."""

from __future__ import annotations

__version__ = "0.1.0"
