#!/usr/bin/env bash
# Bring both databases to what this version needs. Safe to repeat.
set -euo pipefail
airflow db migrate
python -m airflow_provider_sfstream.stores.table upgrade --url-env SFSTREAM_REPLAY_STORE_URL
