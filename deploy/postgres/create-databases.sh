#!/usr/bin/env bash
# Create Airflow's database and the replay store's database, each with a role that owns it and cannot read the other.
set -euo pipefail
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<'END'
\getenv airflow_password AIRFLOW_DATABASE_PASSWORD
\getenv sfstream_password SFSTREAM_DATABASE_PASSWORD
CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE ROLE sfstream LOGIN PASSWORD :'sfstream_password';
CREATE DATABASE airflow OWNER airflow;
CREATE DATABASE sfstream OWNER sfstream;
REVOKE ALL ON DATABASE airflow, sfstream, postgres FROM PUBLIC;
END
