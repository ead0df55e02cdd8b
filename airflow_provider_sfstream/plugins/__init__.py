"""What Airflow's UI shows of this package."""
