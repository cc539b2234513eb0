"""A storage is checked before it is made, and its password is shown nowhere."""

import contextlib
import sqlite3
import traceback

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from myriad.errors import InvalidArgumentError
from myriad.tuning.storage import disconnect, open_storage, shown_storage
from myriad.tuning.study import open_study
from tests.tuning.bowl import bowl, run, settings
from tests.tuning.test_study import trials_of


@pytest.mark.parametrize(
    ("storage", "says"),
    [
        ("sqlit:///studies.db", "sqlit"),
        ("mysql://me:secret@host/studies", "Failed to import DB access module"),
        ("postgresql://me:secret@host:port/studies", "invalid literal for int"),
        ("postgresql://me:se@cret@host/studies", "storage must have %40 for an @"),
        ("me:secret@host/studies.db", "Could not parse"),
        ("", "must be a name"),
    ],
)
def test_a_storage_that_cant_be_used_is_refused_without_its_password(
    storage, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=says) as refused:
        open_storage(storage)
    assert "cret@" not in "".join(traceback.format_exception(refused.value))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.db", b"no database" * 100),
        ("app.db", "CREATE TABLE studies (patient)"),
        ("text.journal", b"no journal"),
        ("other.journal", b'{"results": [1, 2, 3]}\n'),
    ],
)
def test_nothing_is_written_to_a_file_that_is_not_optunas(tmp_path, name, content):
    file = tmp_path / name
    if isinstance(content, str):
        with contextlib.closing(sqlite3.connect(file)) as app:
            app.execute(content)
    else:
        file.write_bytes(content)
    before = file.read_bytes()
    storage = f"sqlite:///{tmp_path}/%61pp.db" if name == "app.db" else str(file)
    with pytest.raises(InvalidArgumentError, match=rf"{name}.*is not "):
        open_storage(storage)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {name: before}


def test_a_plain_name_with_a_percent_sign_is_that_file(tmp_path):
    disconnect(open_storage(f"{tmp_path}/%61.db"))
    assert [each.name for each in tmp_path.iterdir()] == ["%61.db"]


@pytest.mark.parametrize("name", ["studies.db", "studies.journal"])
def test_a_file_that_is_empty_or_that_optuna_made_is_used(tmp_path, name):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).touch()
    optunas = tmp_path / name
    storage = f"sqlite:///{optunas}"
    if name.endswith(".journal"):
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(optunas)))
    theirs = optuna.create_study(study_name="theirs", storage=storage)
    theirs.add_trial(optuna.create_trial(value=1.0))
    disconnect(theirs._storage)
    for file in (tmp_path / "new" / name, optunas):
        run(settings(str(file)), 1)
    assert [trial.value for trial in trials_of(str(optunas), "theirs")] == [1.0]


@pytest.mark.slow
def test_a_wrong_password_is_shown_nowhere(postgresql):
    wrong = postgresql.replace("hush%2Fhush", "wrong%2Fword")
    with pytest.raises(InvalidArgumentError, match="password authentication failed") as caught:
        open_study(settings(wrong), bowl())
    said = "".join(traceback.format_exception(caught.value))
    assert "wrong/word" not in said
    assert "wrong%2Fword" not in said
    assert "hush" not in repr(settings(postgresql)) + shown_storage(postgresql)
