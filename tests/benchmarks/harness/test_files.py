"""A file that a suite leaves is whole, or it is the old one."""

import pytest

from benchmarks.harness.files import replacing, write_text
from myriad.errors import InvalidArgumentError


def test_a_text_replaces_the_old_file_with_its_own_line_endings(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("old")
    write_text(path, "a,b\r\n1,2\r\n")
    assert path.read_bytes() == b"a,b\r\n1,2\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    def write_half():
        with replacing(path) as part:
            part.write_text("ne")
            raise OSError("disk full")

    path = tmp_path / "plot.png"
    path.write_text("old")
    with pytest.raises(InvalidArgumentError, match=r"plot\.png can't be written: disk full\."):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "rows.csv"
    with pytest.raises(
        InvalidArgumentError, match=r"rows\.csv can't be written: Not a directory\.$"
    ):
        write_text(path, "new")
