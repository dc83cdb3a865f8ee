"""Files are replaced whole or not at all, and keep their mode and links."""

import os
import stat

import pytest

from lazyknife.files import (
    check_writable,
    remove_unfinished,
    replacing,
    write_together,
)

POSIX = pytest.mark.skipif(os.name != "posix", reason="files have other modes, names and links")


def write_whole(path, text):
    write_together({path: lambda temporary: temporary.write_text(text, encoding="utf-8")})


def test_a_file_is_replaced_at_once_and_nothing_is_left_behind(tmp_path):
    path = tmp_path / "new folder" / "out.txt"
    write_whole(path, "one")
    write_whole(path, "zwei – 2")
    assert path.read_text(encoding="utf-8") == "zwei – 2"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file_and_unfinished_ones_can_be_removed(tmp_path):
    path = tmp_path / "out.csv"
    write_whole(path, "old")

    def fail_midway():
        with replacing(path) as temporary:
            temporary.write_text("half")
            assert (temporary.suffix, path.read_text()) == (".csv", "old")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with replacing(path) as temporary:
        assert temporary.exists()
        remove_unfinished()
        assert not temporary.exists()
        temporary.write_text("new")
    assert path.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_not_a_regular_file_is_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe.csv", tmp_path / "link.csv"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(ValueError, match=rf"{path.name} is not a regular file: give another"):
            check_writable(path, (".csv",))
        with pytest.raises(OSError, match=rf"{path.name} is not a regular file: give another"):
            write_whole(path, "new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe]


@POSIX
@pytest.mark.parametrize("name", ["a\0b.csv", "\ud800.csv"])
def test_a_name_that_no_file_can_have_is_refused_by_name(tmp_path, name):
    wanted = r"^'.*(\\x00|\\ud800).*' is not the name of a file \(.*\)$"
    with pytest.raises(ValueError, match=wanted):
        write_whole(tmp_path / name, "new")
    assert list(tmp_path.iterdir()) == []


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


@POSIX
def test_a_file_keeps_its_mode_and_a_link_its_place(tmp_path):
    write_whole(tmp_path / "ours", "")
    (tmp_path / "theirs").write_text("")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "theirs")}
    assert len(modes) == 1  # the usual one of new files
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    dangling = tmp_path / "dangling.txt"
    dangling.symlink_to(tmp_path / "there.txt")
    write_whole(dangling, "new")
    assert (tmp_path / "there.txt").read_text() == "new"
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"  # links that go round
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises(OSError, match=r"one\.csv cannot be written"):
        write_whole(one, "")
    with pytest.raises(ValueError, match=r"one\.csv: .* cannot be written to"):
        check_writable(one, (".csv",))


def test_several_files_are_written_all_or_none(tmp_path):
    def full(_):
        raise OSError(28, "No space left on device")

    paths = [tmp_path / "a.csv", tmp_path / "b.html"]
    for path in paths:
        path.write_text("old")
    writers = {paths[0]: lambda temporary: temporary.write_text("new"), paths[1]: full}
    with pytest.raises(OSError, match=r"b\.html cannot be written \(No space left on device\)"):
        write_together(writers)
    assert [path.read_text() for path in paths] == ["old", "old"]
    assert sorted(tmp_path.iterdir()) == paths
