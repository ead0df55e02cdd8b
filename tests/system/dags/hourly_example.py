"""The hourly example on a topic of its own, since events of past hours have to be the first that a topic has.

Its hours end with the tests' minute, so that none ends while tests run.
"""

from __future__ import annotations

import os
from pathlib import Path

example = Path(__file__).with_name("sfstream_hourly.py").read_text()  # an Airflow DAG file, copied beside this one
for ours, theirs in (
    ("/event/Order__e", "/event/Hourly__e"),
    ('"sfstream_hourly"', '"hourly.example"'),
    ("0 * * * *", f"{os.environ['SFSTREAM_TEST_MINUTE']} * * * *"),
):
    assert ours in example
    example = example.replace(ours, theirs)
exec(example)
