#!/usr/bin/env bash
# Bring both databases to what this version needs. Safe to repeat.
set -euo pipefail
airflow db migrate
python -m airflow_provider_sfstream.replay_stores.table upgrade --url-env SFSTREAM_REPLAY_STORE_URL
