#!/usr/bin/env bash
# Write the administrator's password into the file from which the API server reads it, then start the API server.
set -euo pipefail
umask 077
python - <<'END'
import json, os
from pathlib import Path

passwords = {"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}
Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]).write_text(json.dumps(passwords))
END
unset AIRFLOW_ADMIN_PASSWORD
exec airflow api-server
