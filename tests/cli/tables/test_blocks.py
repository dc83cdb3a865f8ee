"""Text files in blocks: the same table as at once, whatever the size of a block."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.cli.tables import Reading, TableError, open_file
from lazyknife.cli.tables.blocks import Blocks, Pieces
from tabular import refused

NUMBER = st.one_of(st.integers(-999, 999), st.floats(-1e9, 1e9)).map(repr)
FIELDS = (
    st.integers(0, 99).map(str),
    NUMBER,
    st.one_of(NUMBER, st.sampled_from(["", "NA"])),
    st.sampled_from(["True", "False"]),
    st.sampled_from(["True", "False", ""]),
    st.one_of(NUMBER, st.sampled_from(["x", "True"])),
    st.sampled_from(["", "a", "b,c", 'say "x"', "two\nlines", "é", "01"]),
    st.just(""),
)


def frame_of(path, block_bytes, **options):
    """The frame, or the message."""
    try:
        return open_file(path, Reading(**options), block_bytes=block_bytes).frame()
    except TableError as error:
        return str(error)


def check_alike(path, block_bytes, **options):
    whole, parts = (frame_of(path, size, **options) for size in (2**22, block_bytes))
    if isinstance(whole, str):
        assert parts == whole
    else:
        pd.testing.assert_frame_equal(parts, whole)
    return whole


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_blocks_of_any_size_make_the_same_frame(tmp_path_factory, data):
    rows = data.draw(st.integers(1, 25))
    columns = data.draw(st.lists(st.sampled_from(FIELDS), min_size=2, max_size=5))
    drawn = [data.draw(st.lists(f, min_size=rows, max_size=rows)) for f in columns]
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerow([f"c{k}" for k in range(len(columns))])
    writer.writerows(zip(*drawn, strict=True))
    path = tmp_path_factory.getbasetemp() / "blocks.csv"
    path.write_bytes(text.getvalue().encode())
    # The separator is decided by the first block, which therefore has a header.
    check_alike(path, data.draw(st.integers(60, 200)), sep=",")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("size", [16, 17, 64])
def test_encodings_are_found_from_the_whole_file(tmp_path, encoding, size):
    path = tmp_path / "a.csv"
    path.write_bytes(("name,b\n" + "plain,1\n" * 20 + "é,2\n").encode(encoding))
    found = check_alike(path, size)
    assert found["name"].iloc[-1] == "é"
    assert found["b"].tolist() == [1] * 20 + [2]


def test_packed_files_and_lines_that_end_like_old_ones(tmp_path):
    frame = pd.DataFrame({"a": np.arange(50), "b": np.arange(50) / 7})
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    check_alike(tmp_path / "a.csv.gz", 40)
    (tmp_path / "b.csv").write_bytes(frame.to_csv(index=False).replace("\n", "\r").encode())
    check_alike(tmp_path / "b.csv", 40)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n" + b"1,2\n" * 30 + b"1,2,3\n" + b"1,2\n" * 9, "line 32 has 3 fields"),
        (b"a,b\n" + b"1,2\n" * 30 + b"1\n", "line 32 has 1 fields"),
        (b'a,b\n"x\ny",2\n' + b"1,2\n" * 30 + b"1\n", "line 34 has 1 fields"),
        (b"a,b\n" + b"1,2\n" * 30 + b'1,"2\n' + b"3,4\n" * 9, "double quote"),
        (b"a,b\n" + b"1,2\n" * 30 + b"1,\0\n", "binary"),
        (b"a,b\n" + b"1,2\n" * 30 + b"1,\x81\n", "UTF-8"),
    ],
)
def test_what_is_wrong_in_a_later_block_is_named_as_in_the_whole_file(tmp_path, content, words):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    whole = refused(lambda: open_file(path).frame(), words)
    assert refused(lambda: open_file(path, block_bytes=32).frame(), words) == whole


def test_a_quote_inside_a_field_is_no_end_of_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("size,b\n" + '5" pipe,1\n' + "6,2\n" * 40)
    assert len(check_alike(path, 32)) == 41


def test_no_block_is_much_larger_than_asked_for(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + '1,"x\ny"\n' * 5000)
    blocks = list(Blocks(Pieces(path, 512), "", ","))
    assert len(blocks) > 50
    assert max(len(block.data) for block in blocks) <= 512 + 16
    assert b"".join(block.data for block in blocks) == path.read_bytes()


def test_batches_of_a_parquet_file(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"a": np.arange(100.0), "b": list("xy") * 50, "c": [1, None] * 50})
    frame.to_parquet(path, row_group_size=30)
    file = open_file(path, block_bytes=16 * 7)
    parts = [part.frame(only=["a", "b"]) for part in file.batches(["a", "b"])]
    assert max(map(len, parts)) == 7
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), frame[["a", "b"]])
    pd.testing.assert_frame_equal(file.frame(only=["c"]), frame[["c"]])


def test_names_with_points_are_names_of_columns(tmp_path):
    frame = pd.DataFrame({"a": [1.0], "a.b": [2.0], "a.b.c": [3.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    file = open_file(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(file.frame(), frame)
    for name in frame:
        pd.testing.assert_frame_equal(next(file.batches([name])).frame(only=[name]), frame[[name]])
