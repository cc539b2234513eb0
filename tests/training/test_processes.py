"""One training in several processes, through the real command line.

It comes to the same as in one process with as many devices. It ends whole: whatever happens to one
process, none is left, and the run goes on from its newest checkpoint.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.ports import free_port

MYRIAD = Path(sys.executable).with_name("myriad")
# A process that waits for one that is gone notices it by then.
GONE_S = 30
TIMEOUT_S = 240

SMALL = {
    "ppo": ["--agent.rollout-steps", "8", "--agent.num-epochs", "2"],
    "pqn": ["--agent.rollout-steps", "8", "--agent.num-epochs", "2"],
    "dqn": [
        "--agent.train-every=2",
        "--agent.learning-starts=96",
        "--batch-size=64",
        "--buffer-size=1024",
        "--agent.priority-alpha=0.6",
    ],
}
WORLD = ["--num-envs", "32", "--num-shards", "8", "--agent.hidden-sizes", "[16,16]", "--quiet"]
# What environments go through, and what is kept of it. All else is learned.
EXACT = ("key", "num_updates", "batch_state", "agent.replay", "agent.num_updates")


def sentences(said):
    """Return the lines of a log, without the one of a process that waits on a busy machine."""
    return [line for line in said.splitlines() if "waits for the others" not in line]


class Training:
    """The processes of a training, each started as in a terminal of its own."""

    def __init__(
        self, folder, *words, num_processes=2, devices=1, others=(), apart=False, numbers=None
    ):
        self.port = free_port()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        numbers = range(num_processes) if numbers is None else numbers
        self.logs = [folder / f"process{place}.log" for place in range(num_processes)]
        several = ["--distributed", "--coordinator", f"127.0.0.1:{self.port}"]
        several += ["--num-processes", str(num_processes)]
        self.processes = []
        for number, log in zip(numbers, self.logs, strict=True):
            own = [*several, "--process-id", str(number)] if num_processes > 1 else []
            arguments = [*words, *own, *(others if number else ())]
            works_in = folder / str(number) if apart else folder
            works_in.mkdir(exist_ok=True)
            with log.open("w") as file:
                self.processes.append(
                    subprocess.Popen(
                        [MYRIAD, "train", *map(str, arguments)],
                        stdout=file,
                        stderr=file,
                        stdin=subprocess.DEVNULL,
                        cwd=works_in,
                        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "XLA_FLAGS": ""},
                    )
                )

    def wait(self, timeout_s=TIMEOUT_S):
        """Return the exit codes."""
        until_s = time.monotonic() + timeout_s
        try:
            return [each.wait(max(0.1, until_s - time.monotonic())) for each in self.processes]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a process is left after {timeout_s} s: {self.said()}") from None
        finally:
            self.end()

    def said(self):
        return [log.read_text() for log in self.logs]

    def workers(self):
        """Return the processes that train, by the number of the process."""
        found = {}
        for number, process in enumerate(self.processes):
            if process.poll() is None:
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                for pid in children.read_text().split():
                    found[number] = int(pid)
        return found

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def words_of(agent, folder, *more, updates=4):
    steps = updates * (8 if agent != "dqn" else 2)
    return [
        *("--env", "cartpole", "--agent", agent, "--steps-per-env", steps, "--run-folder", folder),
        *WORLD,
        *SMALL[agent],
        *more,
    ]


def trained(folder, agent, num_processes, devices, *more, updates=4):
    run = folder / "run"
    training = Training(
        folder,
        *words_of(agent, run, *more, updates=updates),
        num_processes=num_processes,
        devices=devices,
    )
    codes = training.wait()
    assert codes == [0] * num_processes, training.said()
    return run


def newest(run):
    return max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))


def arrays_of(run):
    """Return the arrays of the newest checkpoint, as NumPy's."""
    import orbax.checkpoint as ocp

    path = newest(run)
    with ocp.StandardCheckpointer() as checkpointer:
        held = checkpointer.metadata(path).item_metadata
        kinds = {name: np.zeros(kind.shape, kind.dtype) for name, kind in held.items()}
        return checkpointer.restore(path, kinds)


def differing(one, other):
    assert one.keys() == other.keys()
    return [name for name in one if one[name].tobytes() != other[name].tobytes()]


def assert_same_end(one, other):
    """Compare two runs: bits of what environments went through, the rest within rounding."""
    first, second = arrays_of(one), arrays_of(other)
    assert [name for name in differing(first, second) if name.startswith(EXACT)] == []
    for name in first:
        np.testing.assert_allclose(second[name], first[name], 1e-5, 1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "devices"), [("ppo", 1), ("ppo", 2), ("ppo", 4), ("pqn", 2), ("dqn", 2)]
)
def test_two_processes_come_to_the_same_as_one_with_as_many_devices(agent, devices, tmp_path):
    one = trained(tmp_path / "one", agent, 1, 2 * devices)
    two = trained(tmp_path / "two", agent, 2, devices)
    assert differing(arrays_of(one), arrays_of(two)) == []
    assert (one / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()


@pytest.mark.long
def test_only_process_0_writes_and_prints_and_each_saves_its_own_part(tmp_path):
    run = trained(tmp_path / "two", "dqn", 2, 2, "--checkpoint-every-s", "0")
    first, second = ((tmp_path / "two" / f"process{n}.log").read_text() for n in range(2))
    assert "return" in first
    assert second == ""
    parts = [path.name for path in newest(run).iterdir() if "process" in path.name]
    assert sorted(parts) == ["ocdbt.process_0", "ocdbt.process_1"]
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == len(set(rows)) > 1
    assert not list(run.glob(".shared-*"))


@pytest.mark.long
def test_a_run_goes_on_on_one_device_and_then_in_two_processes(tmp_path):
    eval_every = ["--eval-frequency", "8", "--checkpoint-every-s", "0"]
    whole = trained(tmp_path / "whole", "ppo", 1, 8, *eval_every, updates=6)
    run = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(newest(run))
    for num_processes, devices in ((1, 1), (2, 2)):
        # Take the newest checkpoint away, so that something is left to do.
        if num_processes == 2:
            shutil.rmtree(newest(run))
        training = Training(
            tmp_path / f"logs{num_processes}",
            *("--resume", run, "--quiet"),
            num_processes=num_processes,
            devices=devices,
        )
        assert training.wait() == [0] * num_processes, training.said()
        assert_same_end(whole, run)


ROLLOUT = """
import os, sys
from myriad import Rollout, configure, make_agent, make_env
from myriad.distributed import gloo
from myriad.launch import Launch

number, count, port = map(int, sys.argv[1:4])
configure(distributed=Launch(f"127.0.0.1:{port}", count, number) if count > 1 else False)
env = make_env("cartpole")
rollout = Rollout(env, make_agent("random", env), 1_000, 50, num_devices=2)
state = rollout.run(rollout.init(3), 120)
print(rollout.summary(state))
halves = state.halves.addressable_shards
assert len(halves) == (1 if count > 1 else 2)
if count > 1 and os.path.exists("/proc/self/syscall"):
    polling = gloo.give_way()
    assert polling and {os.sched_getscheduler(task) for task in polling} == {os.SCHED_BATCH}
"""


@pytest.mark.long
def test_a_rollout_in_two_processes_is_that_of_two_devices(tmp_path):
    def started(number, count, port, devices):
        return subprocess.Popen(
            [sys.executable, "-c", ROLLOUT, str(number), str(count), str(port)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "XLA_FLAGS": ""},
        )

    def summary_of(process):
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        return next(line for line in printed.splitlines() if line.startswith("RolloutSummary"))

    port = free_port()
    one = summary_of(started(0, 1, port, 2))
    both = [started(number, 2, port, 1) for number in range(2)]
    assert [summary_of(process) for process in both] == [one, one]


# The least to compile: process 1 compiles in each training, since JAX keeps only what 0 compiles.
LONG = ["--eval-frequency", "80", "--checkpoint-every-s", "0", "--agent.hidden-sizes", "[4]"]


def long_training(folder, *more, others=(), updates=200):
    words = words_of("pqn", folder / "run", *LONG, *more, updates=updates)
    return Training(folder / "logs", *words, others=others)


def wait_for(condition, timeout_s=TIMEOUT_S):
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def has_saved(run):
    return any(path.name.isdigit() for path in run.glob("checkpoints/*"))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    training = long_training(folder)
    assert training.wait() == [0, 0], training.said()
    return folder / "run"


def resumed(run):
    training = Training(run.parent / "again", "--resume", run, "--quiet")
    assert training.wait() == [0, 0], training.said()


def assert_same_run(one, other):
    assert differing(arrays_of(one), arrays_of(other)) == []
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("MYRIAD_KILLS", "2"))))
def test_a_killed_process_takes_the_others_along_and_the_run_goes_on(seed, uninterrupted, tmp_path):
    draws = random.Random(seed)
    victim = seed % 2
    training = long_training(tmp_path)
    run = tmp_path / "run"
    wait_for(lambda: has_saved(run) or training.processes[0].poll() is not None)
    time.sleep(draws.uniform(0, 2))
    assert victim in training.workers(), "the training ended too soon: give it more updates"
    os.kill(training.workers()[victim], signal.SIGKILL)
    killed_at = time.monotonic()
    codes = training.wait(GONE_S)
    assert time.monotonic() - killed_at < GONE_S
    assert codes == [1, 1], training.said()
    mine, other = training.said()[victim], training.said()[1 - victim]
    assert f"process {victim} of 2 was ended by SIGKILL" in mine
    assert f"process {victim} of 2 was lost" in other
    for text in (mine, other):
        assert f"--resume {run}" in text
        assert "Traceback" not in text
        assert "***" not in text
    resumed(run)
    assert_same_run(uninterrupted, run)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_to_one_process_saves_and_ends_all(number, code, uninterrupted, tmp_path):
    training = long_training(tmp_path)
    run = tmp_path / "run"
    wait_for(lambda: has_saved(run))
    training.processes[1].send_signal(number)
    assert training.wait(GONE_S) == [code, code], training.said()
    assert "which are saved" in training.said()[0]
    assert "Traceback" not in "".join(training.said())
    resumed(run)
    assert_same_run(uninterrupted, run)


@pytest.mark.long
def test_a_lost_process_starts_all_again_where_restarts_are_allowed(uninterrupted, tmp_path):
    training = long_training(tmp_path, "--restarts", "1")
    wait_for(lambda: has_saved(tmp_path / "run"))
    os.kill(training.workers()[1], signal.SIGKILL)
    assert training.wait() == [0, 0], training.said()
    assert "restart 1 of 1" in training.said()[1]
    assert_same_run(uninterrupted, tmp_path / "run")


@pytest.mark.long
def test_a_restart_goes_on_with_no_run_that_was_there_before(tmp_path):
    trained(tmp_path, "ppo", 1, 1)
    words = words_of("pqn", tmp_path / "run", "--restarts", "1", updates=200)
    training = Training(tmp_path / "logs", *words)
    # Before they come to the folder, and are refused.
    wait_for(lambda: len(training.workers()) == 2)
    for pid in training.workers().values():
        os.kill(pid, signal.SIGKILL)
    assert training.wait(90) == [2, 2], training.said()
    for text in training.said():
        assert "restart 1 of 1" in text
        assert "already holds a run" in text


@pytest.mark.long
def test_a_signal_before_there_is_anything_to_save_ends_all(tmp_path):
    run = tmp_path / "run"
    # Much to compile, which comes next and ends long after the signal.
    much = ["--agent.hidden-sizes", "[64,64,64,64]"]
    training = Training(tmp_path / "logs", *words_of("ppo", run, *much, updates=200))
    wait_for((run / "config.toml").exists)
    training.processes[1].terminate()
    codes = training.wait(GONE_S)
    assert codes == [143, 143], training.said()
    assert "Traceback" not in "".join(training.said())
    assert not run.exists()


@pytest.mark.long
def test_a_process_that_resumes_beside_one_that_begins_is_refused(tmp_path):
    run = trained(tmp_path, "ppo", 2, 1)
    several = ["--distributed", "--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", "2"]
    begins = [*words_of("ppo", tmp_path / "new"), *several, "--process-id", "0"]
    resumes = ["--resume", run, "--quiet", *several, "--process-id", "1"]
    both = [
        subprocess.Popen(
            [MYRIAD, "train", *map(str, words)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": ""},
        )
        for words in (begins, resumes)
    ]
    for process in both:
        _, said = process.communicate(timeout=90)
        assert process.returncode == 2
        assert 'process 1 has the command = "train --resume"' in said
        assert len(sentences(said)) == 1


@pytest.mark.long
@pytest.mark.parametrize("early", [True, False])
def test_nothing_is_left_where_what_watches_is_killed(early, tmp_path):
    training = long_training(tmp_path)
    if early:
        wait_for(lambda: len(training.workers()) == 2)
    else:
        wait_for(lambda: has_saved(tmp_path / "run"))
    workers = training.workers()
    training.processes[1].kill()
    # Process 0 may still wait for it to come.
    training.wait(90 if early else GONE_S)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers.values()), GONE_S)


@pytest.mark.long
def test_a_checkpoint_that_one_process_cannot_write_ends_all_in_a_sentence(tmp_path):
    training = long_training(tmp_path)
    run = tmp_path / "run"
    wait_for(lambda: has_saved(run))
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("a file is in the way")
    codes = training.wait(GONE_S)
    assert set(codes) == {2}, training.said()
    for text in training.said():
        assert "can't be written" in text
        assert "Traceback" not in text


BAD = [
    (["--agent.learning-rate", "1e-3"], "agent.learning_rate = 0.001, but process 0 has 0.0007"),
    (["--agent", "pppo"], "unknown agent 'pppo'; did you mean 'ppo'?"),
    (["--num-envs", "64"], "num_envs = 64, but process 0 has 32"),
    (
        ["--without-xla-option", "xla_cpu_small_while_loop_byte_threshold"],
        "process 1 has XLA_FLAGS",
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("others", "sentence"), BAD)
def test_a_process_that_starts_otherwise_is_named_in_all(others, sentence, tmp_path):
    training = long_training(tmp_path, others=others)
    assert training.wait(90) == [2, 2]
    for text in training.said():
        assert sentence in text
        assert len(sentences(text)) == 1
    assert "process 1" in training.said()[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--num-shards", "1"],
            "--num-shards must be at least 2 with the 2 devices of 2 processes",
        ),
        (["--num-shards", "64"], "--num-shards must divide num_envs = 32"),
        (["--film-every", "1"], "--film-every must be 0 with several processes"),
        (["--num-seeds", "2", "--num-shards", "1"], "seeds must be None with several processes"),
        (["--profile", "1"], "--profile must be 0 with several processes"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_in_all(words, sentence, tmp_path):
    training = long_training(tmp_path, *words)
    assert training.wait(90) == [2, 2]
    for text in training.said():
        assert sentence in text
        assert len(sentences(text)) == 1


@pytest.mark.long
def test_a_run_folder_that_one_process_does_not_see_is_refused(tmp_path):
    # As on two hosts, the same path is another folder in each.
    training = Training(tmp_path / "logs", *words_of("ppo", "run"), apart=True)
    assert training.wait(90) == [2, 2]
    for text in training.said():
        assert "run folder run must be on a disk that all processes share" in text
        assert len(sentences(text)) == 1
    for number in range(2):
        assert list((tmp_path / "logs" / str(number)).iterdir()) == []


@pytest.mark.long
def test_a_wrong_number_of_processes_is_refused(tmp_path):
    training = long_training(tmp_path, others=["--num-processes", "3", "--process-id", "2"])
    codes = training.wait(150)
    assert codes == [2, 2], training.said()
    assert "num_processes must be the same in all processes" in training.said()[1]
    assert "did not meet all the others" in training.said()[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ((0, 0), "can't be used by process 0 (Address already in use): start process 0 once"),
        ((0, 1, 1), "process_id must be different in each process: two have 1"),
    ],
)
def test_two_processes_with_one_number_are_refused(numbers, sentence, tmp_path):
    words = words_of("ppo", tmp_path / "run")
    training = Training(tmp_path / "logs", *words, num_processes=len(numbers), numbers=numbers)
    try:
        # The others wait a minute for one that has the missing number.
        wait_for(lambda: any(each.poll() is not None for each in training.processes), 90)
        ended = [each.poll() for each in training.processes]
        said = [text for text, code in zip(training.said(), ended, strict=True) if code is not None]
    finally:
        training.end()
    assert {code for code in ended if code is not None} == {2}, said
    assert any(sentence in text for text in said), said
    assert all(len(sentences(text)) == 1 for text in said)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_coordinator_that_cannot_be_reached_is_one_sentence(tmp_path):
    port = free_port()  # where nobody listens
    done = subprocess.run(
        [
            *(MYRIAD, "train", *map(str, words_of("ppo", tmp_path / "run")), "--distributed"),
            *("--coordinator", f"127.0.0.1:{port}", "--num-processes", "2", "--process-id", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"MYRIAD_START_TIMEOUT_S": "3"},
    )
    assert done.returncode == 2
    assert f"coordinator 127.0.0.1:{port} can't be reached by process 1 within 3 s" in done.stderr
    assert len(sentences(done.stderr)) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--distributed needs a launcher, such as srun or mpirun"),
        (["--process-id", "1"], "--coordinator and --num-processes are missing"),
        (
            ["--coordinator", "here", "--num-processes", "2", "--process-id", "1"],
            "--coordinator must be a host and a port",
        ),
        (
            ["--coordinator", "a:1", "--num-processes", "2", "--process-id", "2"],
            "--process-id must be an integer from 0 to 1",
        ),
        (
            ["--coordinator=a:1", "--num-processes=2", "--process-id=0", "--restarts=1"],
            "--restarts needs --run-folder",
        ),
    ],
)
def test_bad_flags_are_one_sentence(words, sentence, tmp_path):
    done = subprocess.run(
        [MYRIAD, "train", "--env", "cartpole", "--agent", "ppo", "--distributed", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_mpirun_starts_a_training(tmp_path):
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        assert not os.environ.get("MYRIAD_CI"), "install openmpi-bin"
        pytest.skip("needs mpirun: apt install openmpi-bin")
    one = trained(tmp_path / "one", "ppo", 1, 2)
    done = subprocess.run(
        [
            *(mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", MYRIAD, "train"),
            "--distributed",
            *map(str, words_of("ppo", tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("return ") == 1
    assert differing(arrays_of(one), arrays_of(tmp_path / "run")) == []
