"""How the commands that measure end, whatever happens in them."""

from pathlib import Path

import pytest

from perfgate.errors import PreparationError, UsageError
from perfgate.files import replace_text
from perfgate.options import guarded


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("--base must be a commit."), 2, "--base must be a commit.\n"),
        (PreparationError("no uv."), 3, "COULD NOT TELL: no uv.\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (
            ZeroDivisionError(),
            3,
            "COULD NOT TELL: a mistake in this command itself: ZeroDivisionError.\n",
        ),
    ],
)
def test_only_a_regression_ends_with_1(capsys, error, code, said):
    def command():
        raise error

    assert guarded(command, "stopped") == code
    assert capsys.readouterr().err.endswith(said)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "gate.md"
    replace_text(file, "old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space"):
            replace_text(file, "new")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
