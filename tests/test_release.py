"""What a release publishes: both distributions, as the package index and its users meet them."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import myriad
from gate_repository import make_repository
from tests.child_processes import run

pytestmark = pytest.mark.long

ROOT = Path(myriad.__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
NAMES = ("myriad_rl", "perfgate")
TRAIN = "import myriad; c = myriad.create_config('cartpole', 'ppo', 8, 1024); "
TRAIN += "print(myriad.train_and_evaluate(c, quiet=True).stopped)"


def build(folder):
    for project in (ROOT, ROOT / "ci" / "gate"):
        # uv makes each wheel from its sdist.
        run(UV, "build", "--quiet", "--out-dir", folder, project, GITHUB_REPOSITORY="owner/fork")
    return {path.name: path for path in folder.iterdir() if path.suffix in (".whl", ".gz")}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


def metadata(files, name):
    with zipfile.ZipFile(files[f"{name}-{myriad.__version__}-py3-none-any.whl"]) as wheel:
        (path,) = (each for each in wheel.namelist() if each.endswith("/METADATA"))
        return message_from_bytes(wheel.read(path))


def test_both_carry_one_version_and_are_the_same_bytes_twice(files, tmp_path):
    endings = ("-py3-none-any.whl", ".tar.gz")
    assert set(files) == {f"{n}-{myriad.__version__}{end}" for n in NAMES for end in endings}
    for name, path in build(tmp_path).items():
        assert path.read_bytes() == files[name].read_bytes(), name


def test_links_of_the_readme_work_on_the_index(files):
    text = metadata(files, "myriad_rl").get_payload()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10
    assert all(target.startswith(("https://", "#")) for target in targets), targets
    assert "](https://github.com/owner/fork/raw/main/results/" in text


def python_of(version):
    """Return a Python of a version such as "3.13", from PATH or pyenv, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    on_path = shutil.which(f"python{version}")
    for path in filter(None, (on_path, *pyenv.glob(f"versions/{version}.*/bin/python"))):
        # pyenv's own command of that name fails if another version is chosen.
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheels_train_tune_and_gate_in_an_empty_environment(files, version, tmp_path):
    found = python_of(version)
    if found is None:
        pytest.skip(f"Python {version} is missing")
    python = tmp_path / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", found, tmp_path / "venv")
    ours, gate = (f"{files[f'{n}-{myriad.__version__}-py3-none-any.whl']}" for n in NAMES)
    run(UV, "pip", "install", "--quiet", "--python", python, f"{ours}[tune]", gate)
    alone = {"cwd": tmp_path, "HOME": str(tmp_path)}
    assert run(python, "-c", TRAIN, **alone).stdout == "end\n"
    tune = "tune --env cartpole --agent ppo --num-steps 1024 --n-trials 2 --num-seeds 1 --quiet"
    assert "best: trial" in run(python.with_name("myriad"), *tune.split(), **alone).stdout
    (tmp_path / "judged").mkdir()
    repository = make_repository(tmp_path / "judged")
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    command = [python.with_name("perfgate"), "--base", "main", "--bench", "track_mean"]
    done = run(*command, "--no-timing", code=1, cwd=repository.root)
    assert "FAILED: 1 regressed" in done.stdout
