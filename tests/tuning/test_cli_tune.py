"""The command `myriad tune`: what it refuses, the files that it writes and how it ends."""

import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import optuna
import pytest

from ci.site.build import publish
from myriad.cli import main
from myriad.training.config import TrainingConfig
from myriad.tuning.study import retried

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--num-steps", "4096", "--eval-interval", "2048", "--quiet"]
# A single shape that compiles in seconds.
SPACE = """
[fixed]
num_envs = 16
"agent.num_minibatches" = 8
"agent.num_epochs" = 1
rollout_steps = 32

[parameters]
"agent.learning_rate" = { low = 1e-4, high = 1e-2, log = true }
"agent.gamma" = { low = 0.9, high = 0.999 }
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env bucket-brigade --scenario esy", "unknown scenario 'esy'"),
        ("--scenario easy", "unknown field 'env.scenario'"),
        ("--env pendulum-control --agent dqn", "ppo learns such actions"),
        ("--n-jobs 0", "--n-jobs must be at least 1"),
        (
            "--eval-interval 60000",
            "--eval-interval must be at most num_steps (50,000), but got 60,000",
        ),
        ("--storage sqlit:///x", "Can't load plugin: sqlalchemy.dialects:sqlit"),
        ("--storage postgresql://me:hush@127.0.0.1:1/x", "onnection refused"),
        ("--storage postgres://h/x?password=hush", "Can't load plugin"),
        ("--storage me:password=hush", "--storage must be FILE.db"),
        ("--storage sqlite://me:hush@h/x", "got 'sqlite://...'"),
        ("--storage /dev/null/x.db", "File exists: '/dev/null'"),
        ("--space space.toml", "agent.learning_rat"),
        ("--objectives return return", "--objectives must"),
        ("--study-name ../x", "--study-name must"),
        ("--warm-start x", "unknown study 'x'"),
        ("--ensemble 1", "--ensemble must be 0 or at least 2"),
        ("--agent.gamma 0.9", "--agent.gamma must be left out, since"),
        (
            "--output /dev/null/x",
            "--output must be a folder that can be written to, but /dev/null/x can't be made",
        ),
        ("--study-name postgresql://me:hush@h/x", "me:***@h/x"),
        ("--space postgresql://me:hush@h/x", ":***@h/x"),
        ("--env postgresql://me:hush@h/x", "me:***@h/x"),
        ("--warm-start postgresql://me:hush@h/x", "unknown study"),
    ],
)
def test_what_cant_be_used_is_refused_and_makes_no_study(
    words, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text('[parameters]\n"agent.learning_rat" = { low = 1.0, high = 2.0 }')
    words = words.split()
    given = [] if "--env" in words else ["--env", "cartpole-control"]
    given += [] if "--storage" in words else ["--storage", "sqlite:///made.db"]
    assert main(["tune", *given, *words]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert "Traceback" not in said.err
    assert "hush" not in said.err + said.out
    assert not Path("results").exists()
    if "--warm-start" not in words:
        assert not Path("made.db").exists()


@pytest.mark.parametrize("file", ["x_results.json", "x_best.toml"])
def test_the_results_of_another_study_are_replaced_only_by_force(
    file, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text("older")
    words = ["tune", "--env", "cartpole-control", "--study-name", "x", "--n-trials", "0"]
    assert main([*words, "--output", "."]) == 2
    sentence = f"{file} exists: name another file, or replace it by --force.\n"
    assert capsys.readouterr().err == sentence
    assert (tmp_path / file).read_text() == "older"
    assert main([*words, "--output", ".", "--force"]) == 0
    assert '"study": "x"' in (tmp_path / "x_results.json").read_text()


@pytest.mark.slow
def test_without_optuna_one_sentence_says_how_to_install_it(tmp_path):
    says = "tuning needs Optuna: pip install 'myriad[tune]'\n"

    def ended(code):
        without = f"import sys; sys.modules['optuna'] = None; {code}"
        return subprocess.run(
            [sys.executable, "-c", without],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    command = ended("from myriad.cli import main; sys.exit(main(['tune', '--env', 'cartpole']))")
    assert (command.returncode, command.stderr) == (2, says)
    assert ended("from myriad.tuning import tune").stderr.endswith(f"NotInstalledError: {says}")
    assert list(tmp_path.iterdir()) == []


def tune(folder: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Tune in a folder, in the small space."""
    (folder / "space.toml").write_text(SPACE)
    command = [sys.executable, "-m", "myriad.cli", "tune", "--space", "space.toml", *SMALL, *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> tuple[Path, str]:
    """A finished campaign of a few trials, through the script: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "space.toml").write_text(SPACE)
    script = ROOT / "scripts" / "tune_hyperparameters.py"
    flags = ["--env", "cartpole-control", "--space", "space.toml", "--n-trials", "6", *SMALL]
    flags += ["--storage", "sqlite:///made/studies.db", "--study-name", "small"]
    done = subprocess.run(
        [sys.executable, script, *flags], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.slow
def test_the_results_hold_all_trials_and_where_they_ran(tuned):
    folder, _ = tuned
    results = json.loads((folder / "results/tuning/small_results.json").read_text())
    assert len(results["trials"]) == 6
    assert {trial["state"] for trial in results["trials"]} <= {"COMPLETE", "PRUNED"}
    assert all(trial["seeds"] and trial["intermediate_values"] for trial in results["trials"])
    assert results["versions"]["optuna"]
    assert results["hardware"]["cores"] >= 1


@pytest.mark.slow
def test_the_printed_command_trains_what_the_best_file_says(tuned):
    import shlex

    folder, printed = tuned
    (command,) = (line for line in printed.splitlines() if line.startswith("myriad train"))
    assert "default: return" in printed
    file = folder / "results/tuning/small_best.toml"
    best = TrainingConfig.from_toml(file.read_text())
    words = shlex.split(command)[1:]
    run = [sys.executable, "-m", "myriad.cli", *words, "--run-folder", "again", "--quiet"]
    subprocess.run(run, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    again = tomllib.loads((folder / "again" / "config.toml").read_text())
    assert again == tomllib.loads(best.resolve().with_devices().config.to_toml())
    results = json.loads((folder / "results/tuning/small_results.json").read_text())
    assert best.agent_options["learning_rate"] == results["best"]["params"]["agent.learning_rate"]


@pytest.mark.slow
def test_the_site_has_a_page_of_the_study(tuned, tmp_path):
    folder, printed = tuned
    publish(folder / "results", tmp_path / "site", datetime.now(UTC), repository=tmp_path)
    page = html.unescape((tmp_path / "site" / "studies.html").read_text())
    (command,) = (line for line in printed.splitlines() if line.startswith("myriad train"))
    assert command in page
    assert 'href="data/raw/small_results.json"' in page
    assert 'href="studies/small_history.html"' in page
    assert (tmp_path / "site" / "studies" / "plotly.min.js").exists()
    assert any(verdict in page for verdict in ("better", "worse", "not distinguishable"))


@pytest.mark.slow
def test_the_pages_open_offline_with_one_plotly_beside_them(tuned):
    folder, _ = tuned
    pages = sorted((folder / "results" / "tuning").glob("*.html"))
    kinds = {page.stem.removeprefix("small_") for page in pages}
    assert {"history", "importances", "parallel", "slice"} <= kinds
    assert all('src="plotly.min.js"' in page.read_text() for page in pages)
    assert (folder / "results" / "tuning" / "plotly.min.js").stat().st_size > 1_000_000
    _open_in_chromium(pages)


def _open_in_chromium(pages: list[Path]) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        message = "chromium is missing: apt install chromium"
        if os.environ.get("MYRIAD_CI"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=arguments, timeout=1_200_000
        )
        for path in pages:
            page = browser.new_page()
            errors, requests = [], []
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            page.on("request", lambda request, requests=requests: requests.append(request.url))
            page.goto(path.as_uri(), timeout=1_200_000)
            page.wait_for_selector(".main-svg", timeout=1_200_000)
            assert errors == []
            assert all(url.startswith(("file:", "data:", "blob:")) for url in requests), requests
        browser.close()


@pytest.mark.slow
def test_trials_that_all_fail_are_an_error_with_their_reason(tmp_path):
    done = tune(tmp_path, "--env", "tests.tuning.small_space:Unbounded", "--n-trials", "3")
    assert done.returncode == 1, done.stderr
    assert "no trial was completed, so there is no best" in done.stdout
    assert re.search(
        r"3 failed: .*infinity in an observation or a reward by step 2,048", done.stdout
    )


@pytest.mark.slow
def test_a_resumed_campaign_begins_with_the_best_so_far(tuned, tmp_path):
    """And what variables set is in its trainings and in the command that it prints."""
    folder, _ = tuned
    shutil.copytree(folder / "made", tmp_path / "made")
    flags = ["--env", "cartpole-control", "--n-trials", "1"]
    flags += ["--storage", "sqlite:///made/studies.db", "--study-name", "small"]
    refused = tune(tmp_path, *flags, USE_BF16="true")
    assert refused.returncode == 2
    assert "agent_options" in refused.stderr
    done = tune(tmp_path, *flags, OPTIMAL_BATCH_SIZE="64", USE_COMPILE="false")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("myriad train"))
    assert "--compile-mode aot" in line
    assert "--agent.num-minibatches 8" in line
    assert "--batch-size" not in line


@pytest.mark.slow
def test_processes_share_a_server_whose_password_is_written_nowhere(postgresql, tmp_path):
    flags = ["--env", "cartpole-control", "--n-trials", "4", "--n-jobs", "2"]
    done = tune(tmp_path, *flags, "--storage", postgresql, "--study-name", "served")
    assert done.returncode == 0, done.stderr
    results = (tmp_path / "results/tuning/served_results.json").read_text()
    assert [trial["state"] for trial in json.loads(results)["trials"]].count("COMPLETE") >= 1
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    said = "".join([done.stdout, done.stderr, *written])
    assert "postgresql://tuner@127.0.0.1" in said
    assert "hush" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_prints_the_best_so_far_and_how_to_go_on(tmp_path, number, code):
    (tmp_path / "space.toml").write_text(SPACE)
    flags = ["--env", "cartpole-control", "--space", "space.toml", "--n-trials", "10000", *SMALL]
    flags += ["--storage", "sqlite:///studies.db", "--study-name", "cut"]
    process = subprocess.Popen(
        [sys.executable, "-m", "myriad.cli", "tune", *flags],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_a_finished_trial(f"sqlite:///{tmp_path}/studies.db", process)
        process.send_signal(number)
        printed, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code
    assert "best: trial" in printed
    assert "interrupted; go on with: myriad tune" in printed
    assert "--storage sqlite:///studies.db" in printed
    left = re.search(r"go on with: .* --n-trials (\d+)", printed)
    trials = _trials(f"sqlite:///{tmp_path}/studies.db")
    ended = {trial.number for trial in trials if trial.state.is_finished()} - retried(trials)
    assert int(left[1]) == 10_000 - len(ended)


def _trials(storage: str) -> list[optuna.trial.FrozenTrial]:
    with contextlib.suppress(Exception):  # neither file nor tables may be there yet
        return optuna.load_study(study_name="cut", storage=storage).get_trials()
    return []


def _wait_for_a_finished_trial(storage: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 600
    while not any(trial.state.name == "COMPLETE" for trial in _trials(storage)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.3)
