import stat

import pytest

from lazyknife.files import check_writable, replacing, write_whole


def test_a_file_is_replaced_at_once_and_nothing_is_left_behind(tmp_path):
    path = tmp_path / "new folder" / "out.txt"
    write_whole(path, "one")
    write_whole(path, "zwei – 2")
    assert path.read_text(encoding="utf-8") == "zwei – 2"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "out.csv"
    write_whole(path, "old")

    def fail_midway() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            assert temporary.suffix == ".csv"
            assert path.read_text() == "old"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_usual_permissions(tmp_path):
    write_whole(tmp_path / "ours", "")
    (tmp_path / "theirs").write_text("")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "theirs")}
    assert len(modes) == 1


def test_a_path_that_cannot_be_written_is_refused_beforehand(tmp_path):
    check_writable(tmp_path / "not" / "yet" / "there.CSV", (".csv", ".tsv"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"a\.txt: give a name that ends in \.csv, \.tsv"):
        check_writable(tmp_path / "a.txt", (".csv", ".tsv"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        check_writable(tmp_path / "folder.csv", (".csv",))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written to"):
        check_writable(tmp_path / "file" / "a.csv", (".csv",))
