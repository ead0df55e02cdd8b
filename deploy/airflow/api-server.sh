#!/usr/bin/env bash
# Give the API server the administrator's password in the file where it looks for it, then become the API server.
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
