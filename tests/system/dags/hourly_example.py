"""The hourly example as it is, on a topic of its own: events of past hours have to be the first that a topic has."""

from __future__ import annotations

from pathlib import Path

example = Path(__file__).with_name("sfstream_hourly.py").read_text()  # an Airflow DAG file, copied beside this one
exec(example.replace("/event/Order__e", "/event/Hourly__e").replace('"sfstream_hourly"', '"hourly.example"'))
