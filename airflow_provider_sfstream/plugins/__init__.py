"""Plugin for Airflow's UI."""
