"""The command `myriad tune`: what it refuses, the files that it writes and how it ends."""

import contextlib
import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import optuna
import pytest

from myriad.cli import main
from myriad.training.config import TrainingConfig
from myriad.tuning.study import retried
from tests.child_processes import python, until
from tests.tuning.small_space import SPACE
from tests.tuning.test_study import states, trials_of

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--num-steps", "512", "--eval-interval", "256", "--num-seeds", "1", "--quiet"]
COMMAND = ["tune", "--space", "space.toml", *SMALL]
CARTPOLE = ["--env", "cartpole-control"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env bucket-brigade --scenario esy", "unknown scenario 'esy'"),
        ("--scenario easy", "unknown field 'scenario' of cartpole"),
        ("--env pendulum-control --agent dqn", "must have finitely many actions for DQN"),
        ("--n-jobs 0", "--n-jobs must be at least 1"),
        ("--ensemble 1", "--ensemble must be 0 or at least 2"),
        ("--objectives return return", "--objectives must"),
        ("--eval-interval 60000", "--eval-interval must be at most num_steps (50,000)"),
        ("--storage postgresql://me:hush@127.0.0.1:1/x", "onnection refused"),
        ("--storage /dev/null/x.db", "/dev/null"),
        ("--space space.toml", "agent.learning_rat"),
        ("--study-name ../x", "--study-name must"),
        ("--agent.gamma 0.9", "--agent.gamma must be left out"),
        ("--output /dev/null/x", "--output must be a folder that can be written to"),
        ("--env postgresql://me:hush@h/x", "me:***@h/x"),
    ],
)
def test_what_cant_be_used_is_refused_and_makes_no_study(words, says, refused, tmp_path):
    (tmp_path / "space.toml").write_text('[parameters]\n"agent.learning_rat" = { choices = [1] }')
    # The options that come later win.
    said = refused("tune", *CARTPOLE, "--storage", "made.db", *words.split())
    assert says in said
    assert "hush" not in said


@pytest.mark.parametrize("file", ["x_results.json", "x_best.toml"])
def test_the_results_of_another_study_are_replaced_only_by_force(
    file, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text("older")
    words = ["tune", *CARTPOLE, "--study-name", "x", "--n-trials", "0", "--output", "."]
    assert main(words) == 2
    assert f"{file} exists" in capsys.readouterr().err
    assert (tmp_path / file).read_text() == "older"
    assert main([*words, "--force"]) == 0
    anew = "trials that differ in agent.hidden_sizes and rollout_steps compile anew, 16 sets of"
    assert anew in capsys.readouterr().err
    assert '"study": "x"' in (tmp_path / "x_results.json").read_text()


@pytest.mark.slow
def test_without_optuna_one_sentence_says_how_to_install_it(tmp_path):
    code = "import sys; sys.modules['optuna'] = None; from myriad.cli import main; "
    code += "sys.exit(main(['tune', '--env', 'cartpole']))"
    said = python("-c", code, cwd=tmp_path, code=2).stderr
    assert "pip install 'myriad-rl[tune]'" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tune(tmp_path, monkeypatch, capsys):
    """Return a function that tunes in the test's folder, in the small space."""
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE)

    def run(*flags):
        code = main([*COMMAND, *flags])
        return code, capsys.readouterr()

    return run


@pytest.mark.slow
def test_a_campaign_leaves_files_a_command_that_trains_and_a_study_to_go_on_with(
    tune, tmp_path, monkeypatch
):
    stored = [*CARTPOLE, "--storage", "sqlite:///made/studies.db", "--study-name", "small"]
    with monkeypatch.context() as patch:
        patch.setenv("OPTIMAL_BATCH_SIZE", "64")  # the space sets minibatches
        patch.setenv("USE_COMPILE", "false")  # a campaign always compiles
        code, said = tune(*stored, "--n-trials", "4", "--validate", "2", "--ensemble", "2")
    assert code == 0, said.err
    assert "default: return" in said.out
    folder = Path("results/tuning")
    results = json.loads((folder / "small_results.json").read_text())
    assert len(results["trials"]) == 4
    assert f"of which {sum(results['compile_s']):.1f} s compiled programs" in said.out
    assert {trial["state"] for trial in results["trials"]} <= {"COMPLETE", "PRUNED"}
    assert all(trial["intermediate_values"] for trial in results["trials"])
    assert results["seeds"] == [42]
    assert results["versions"]["optuna"]
    assert results["hardware"]["cores"] >= 1

    # The agent's defaults come first, as far as the space holds them.
    first = results["trials"][0]["params"]
    assert (first["agent.learning_rate"], first["agent.gamma"]) == (5e-4, 0.99)
    # The best few and the default train again on five seeds on which no trial trained.
    confirmed, best = results["confirmation"], results["best"]
    assert confirmed["seeds"] == [*range(1042, 1047)]
    assert len(confirmed["default"]["by_seed"]) == 5
    study = optuna.load_study(study_name="small", storage="sqlite:///made/studies.db")
    winner = confirmed["candidates"][0]["number"]
    assert study.user_attrs["best_confirmed"] == best["number"] == winner
    assert len(results["validation"]["by_seed"]) == 2
    assert results["ensemble"]["combined"] == "majority vote"

    # The printed command trains what the file of the best trial says.
    (command,) = (line for line in said.out.splitlines() if line.startswith("myriad train"))
    assert "--compile-mode aot" in command
    assert "--agent.num-minibatches 2" in command
    assert "--batch-size" not in command
    config = TrainingConfig.from_toml((folder / "small_best.toml").read_text())
    assert main([*shlex.split(command)[1:], "--run-folder", "again", "--quiet"]) == 0
    again = tomllib.loads(Path("again/config.toml").read_text())
    assert again == tomllib.loads(config.to_toml())
    assert config.agent_options["learning_rate"] == best["params"]["agent.learning_rate"]

    # What a variable sets is in the trainings, and so is refused where it differs.
    monkeypatch.setenv("USE_BF16", "true")
    code, said = tune(*stored, "--n-trials", "1")
    assert (code, "agent_options" in said.err) == (2, True)


@pytest.mark.slow
def test_trials_that_all_fail_are_an_error_with_their_reason(tune):
    code, said = tune("--env", "tests.tuning.small_space:Unbounded", "--n-trials", "2")
    assert code == 1, said.err
    assert "no trial was completed, so there is no best" in said.out
    assert re.search(r"2 failed: .*infinity in an evaluation at step 256", said.out)


@pytest.mark.slow
def test_processes_share_a_server_whose_password_is_written_nowhere(postgresql, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    flags = ["--n-trials", "2", "--n-jobs", "2", "--storage", postgresql, "--study-name", "served"]
    done = python("-m", "myriad.cli", *COMMAND, *CARTPOLE, *flags, cwd=tmp_path)
    results = (tmp_path / "results/tuning/served_results.json").read_text()
    assert [trial["state"] for trial in json.loads(results)["trials"]].count("COMPLETE") >= 1
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    said = "".join([done.stdout, done.stderr, *written])
    assert "postgresql://tuner@127.0.0.1" in said
    assert "hush" not in said


@pytest.fixture
def started(tmp_path):
    """Start a campaign without an end; once a trial has ended, return its process and trials."""
    (tmp_path / "space.toml").write_text(SPACE)
    flags = [*CARTPOLE, "--n-trials", "10000", "--study-name", "cut", "--storage", "studies.db"]

    def trials_now():
        return trials_of(f"sqlite:///{tmp_path}/studies.db", "cut")

    with contextlib.ExitStack() as ends:

        def start(*more):
            command = [sys.executable, "-m", "myriad.cli", *COMMAND, *flags, *more]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, cwd=tmp_path, stdout=pipe, text=True)
            ends.enter_context(process)
            ends.callback(process.kill)
            until(lambda: process.poll() is not None or "COMPLETE" in states(trials_now()))
            return process, trials_now

        yield start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "flags"),
    [
        (signal.SIGINT, 130, []),
        pytest.param(signal.SIGTERM, 143, ["--n-jobs", "2"], marks=pytest.mark.long),
    ],
)
def test_a_signal_prints_the_best_so_far_and_how_to_go_on(started, number, code, flags):
    process, trials_now = started(*flags)
    process.send_signal(number)
    printed, _ = process.communicate()
    assert process.returncode == code
    assert "best: trial" in printed
    go_on = r"interrupted; go on with the same command and --study-name cut --storage studies\.db "
    left = re.search(rf"{go_on}--n-trials (\d+)", printed)
    trials = trials_now()
    assert "RUNNING" not in states(trials)
    ended = {trial.number for trial in trials if trial.state.is_finished()} - retried(trials)
    assert int(left[1]) == 10_000 - len(ended)


@pytest.mark.long
def test_the_processes_of_a_killed_campaign_queue_their_trials_again_and_end(started):
    process, trials_now = started("--n-jobs", "2")
    process.kill()
    until(lambda: "RUNNING" not in states(trials_now()))
    trials = trials_now()
    failed = {trial.number for trial in trials if trial.state.name == "FAIL"}
    assert failed == retried(trials) != set()
