#!/usr/bin/env bash
# Migrate both databases to this version. Safe to repeat.
set -euo pipefail
airflow db migrate
python -m airflow_provider_sfstream.replay_stores.table upgrade --url-env SFSTREAM_REPLAY_STORE_URL
