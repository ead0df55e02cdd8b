"""The example of a deadline alert, with a deadline of a second and a topic that does not exist."""

from __future__ import annotations

from pathlib import Path

example = Path(__file__).with_name("sfstream_deadline.py").read_text()  # an Airflow DAG file, copied beside this one
for ours, theirs in (
    ("/event/Order__e", "/event/Deadline__e"),
    ('"sfstream_deadline"', '"deadline.missed"'),
    ('schedule="*/15 * * * *"', "schedule=None"),
    ("hours=6", "seconds=1"),
):
    example = example.replace(ours, theirs)
exec(example)
