from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfstream_localorg.rest.bulk_csv import DELIMITERS, LINE_ENDINGS, CsvFormat


@settings(max_examples=50)
@given(
    delimiter=st.sampled_from(sorted(DELIMITERS)),
    line_ending=st.sampled_from(sorted(LINE_ENDINGS)),
    rows=st.lists(st.lists(st.text(alphabet=st.sampled_from('ab",;|^`\t\n äß')), min_size=2, max_size=2), max_size=3),
)
def test_written_csv_is_read_unchanged(delimiter: str, line_ending: str, rows: list[list[str]]) -> None:
    layout = CsvFormat(delimiter, line_ending)
    assert layout.read(layout.write(["A", "B"], rows)) == (["A", "B"], rows)


def test_csv_text_of_null_booleans_and_numbers() -> None:
    assert (
        CsvFormat().write(["A", "B", "C", "D"], [[None, True, 1.5, 'x"y']])
        == '"A","B","C","D"\n"","true","1.5","x""y"\n'
    )


def test_missing_final_line_break_and_empty_lines_are_accepted() -> None:
    assert CsvFormat().read("A,B\n1,2\n\n3,4") == (["A", "B"], [["1", "2"], ["3", "4"]])
    assert CsvFormat(line_ending="CRLF").read("A") == (["A"], [])


@pytest.mark.parametrize(
    ("line_ending", "text", "error"),
    [
        ("LF", "A\r\n1\r\n", "ClientInputError : LineEnding is invalid on user data. Current LineEnding setting is LF"),
        ("CRLF", "A\n1\n", "ClientInputError : LineEnding is invalid on user data. Current LineEnding setting is CRLF"),
        ("LF", "A,B\n1,2\n1\n", "row 2 has 1 values for 2 fields"),
        ("LF", 'A\n"1\n', "InvalidBatch : Failed to parse CSV"),
        ("LF", "", "there is no line of field names"),
        ("LF", "\n\n", "there is no line of field names"),
    ],
)
def test_invalid_csv_of_a_job_is_refused(line_ending: str, text: str, error: str) -> None:
    with pytest.raises(ValueError) as caught:
        CsvFormat(line_ending=line_ending).read(text)
    assert error in str(caught.value)
