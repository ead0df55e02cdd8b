"""Clients of the Streaming API."""

from airflow_provider_sfstream.extras import require_extra

require_extra("streaming")
