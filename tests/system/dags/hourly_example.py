"""The hourly example on its own topic, because events of past hours must be the first events of a topic.

Its hours end at the tests' minute, so that no hour ends while tests run.
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
