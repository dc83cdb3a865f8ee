"""Tables are written completely or not at all."""

from pathlib import Path

import pandas as pd

from lazyknife.cli.tables import SUFFIXES, write_table
from tabular import refused


def test_a_failing_write_leaves_the_old_file(tmp_path):
    class Failing(pd.DataFrame):
        def to_csv(self, *_, **__):
            raise OSError(28, "No space left on device")

        def to_parquet(self, path, **_):
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        path.write_text("old")
        refused(lambda path=path: write_table(Failing(), path), str(path), "No space left")
        assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == len(SUFFIXES)


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    (tmp_path / "a.csv").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "a.csv", tmp_path / "file" / "new" / "a.csv"):
        refused(lambda path=path: write_table(frame, path), str(path), "cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "file"]
    write_table(frame, tmp_path / "new" / "folders" / "a.csv")
