"""One training in several processes, through the real command line.

It comes to the same as in one process with as many devices. If a process is lost, the others end,
and the run continues from its newest checkpoint.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from myriad import load_agent
from tests.bits import assert_same_bits
from tests.child_processes import free_port, until
from tests.child_processes import run as ended

MYRIAD = Path(sys.executable).with_name("myriad")
# Short, so that the tests are. JAX ends a process a little later.
HEARTBEAT_S = 10
SLACK_S = 15
TIMEOUT_S = 240
# Little to compile, and long enough to be ended in the middle.
LONG = [
    *("--env", "cartpole", "--agent", "pqn", "--num-envs", "32", "--quiet"),
    *("--agent.hidden-sizes", "[4]", "--agent.rollout-steps=8", "--steps-per-env", "800"),
    *("--eval-frequency", "80", "--checkpoint-every-s", "0"),
]


def started(*command, devices=1, cwd=None, **variables):
    """Start a program on so many devices."""
    return subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "XLA_FLAGS": ""} | variables,
    )


def training(folder, *words, others=(), variables=()):
    """Start the two processes of a training, each as in a terminal of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    several = ["--distributed", "--coordinator", f"127.0.0.1:{free_port()}"]
    several += ["--num-processes", 2, "--process-id"]
    heartbeat = {"MYRIAD_HEARTBEAT_TIMEOUT_S": str(HEARTBEAT_S)}
    first, second = [[MYRIAD, "train", *words, *several, number] for number in range(2)]
    return [
        started(*first, cwd=folder, **heartbeat),
        started(*second, *others, cwd=folder, **heartbeat | dict(variables)),
    ]


def end_of(both, timeout_s=TIMEOUT_S):
    """Return the exit codes, the lines of the standard outputs, and the standard errors."""
    until_s = time.monotonic() + timeout_s
    try:
        texts = [each.communicate(timeout=until_s - time.monotonic()) for each in both]
    finally:
        for each in both:
            each.kill()
    # Without the lines of JAX's connections.
    lines = [re.sub(r"(?m)^\[Gloo\].*\n", "", text).splitlines() for text, _ in texts]
    return [each.returncode for each in both], lines, [said for _, said in texts]


MORE_DEVICES = {"JAX_NUM_CPU_DEVICES": "2"}
REFUSED = [
    # What all processes are given, what process 1 alone is given, its variables, and the sentence.
    ([], ["--agent.learning-rate", "1e-3"], {}, "process 1 has agent.learning_rate = 0.001, but"),
    ([], ["--without-xla-option=xla_cpu_use_multi_output_fusion"], {}, "process 1 has XLA_FLAGS"),
    (["--num-envs=48"], [], MORE_DEVICES, "all 2 processes must have as many devices"),
    (["--num-devices=1"], [], {}, "--num-devices must be 2, the devices of all 2 processes"),
    (["--film-every=1"], [], {}, "--film-every must be 0 with several processes"),
    (["--run-folder=.."], [], {}, "run folder .. holds "),
]


@pytest.mark.parametrize(
    ("words", "others", "variables", "sentence"),
    [
        pytest.param(*row, marks=pytest.mark.long if number else pytest.mark.slow)
        for number, row in enumerate(REFUSED)
    ],
)
def test_processes_that_cannot_train_together_are_refused_in_all(
    words, others, variables, sentence, tmp_path
):
    run = ["--run-folder", tmp_path / "run"]
    both = training(tmp_path / "logs", *LONG, *run, *words, others=others, variables=variables)
    codes, _, said = end_of(both, 90)
    assert codes == [2, 2], said
    for each in said:
        assert sentence in each
        assert "Traceback" not in each
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run in one process that has the devices of both."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    run = [MYRIAD, "train", *LONG, "--num-devices=2", "--run-folder", folder]
    ended(*run, JAX_NUM_CPU_DEVICES="2", XLA_FLAGS="")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "victim", "codes"),
    [
        (signal.SIGTERM, 1, [143, 143]),
        pytest.param(signal.SIGINT, 0, [130, 143], marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, 0, None, marks=pytest.mark.long),
    ],
)
def test_two_processes_end_together_and_go_on_to_what_one_with_two_devices_comes_to(
    number, victim, codes, uninterrupted, tmp_path
):
    run = tmp_path / "run"
    both = training(tmp_path, *LONG, "--run-folder", run)
    until(lambda: any(path.name.isdigit() for path in run.glob("checkpoints/*")))
    both[victim].send_signal(number)
    found, _, said = end_of(both, HEARTBEAT_S + SLACK_S)
    if codes is None:
        assert found[victim] == -number
        assert found[1 - victim] not in (0, -signal.SIGKILL), "the test itself had to end it"
    else:
        assert [code % 256 if code >= 0 else 128 - code for code in found] == codes
        assert f"`myriad train --distributed --resume {run}` goes on" in said[0]
    found, printed, said = end_of(training(tmp_path / "again", "--resume", run, "--quiet"))
    assert found == [0, 0], said
    runs = (uninterrupted, run)
    assert_same_bits(*(load_agent(each)[2].state for each in runs))
    rows, expected = ((each / "metrics.jsonl").read_bytes() for each in runs)
    assert rows == expected
    # Process 0 alone prints and writes rows, and each saves its own part.
    first, second = printed
    assert [line.split()[0] for line in first] == ["return", "trained"]
    assert second == []
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    parts = sorted(path.name for path in newest.glob("*process*"))
    assert parts == ["ocdbt.process_0", "ocdbt.process_1"]


CALLBACK = """
import sys, time
from myriad import configure, create_config, train_and_evaluate
from myriad.distributed import Launch
from myriad.training.callbacks import Callback

class Stops(Callback):
    def on_evaluation(self, run):
        print("called at", run.update, flush=True)
        run.set_env(gravity=3.7)
        if run.update == 20:
            run.stop()

class Raises(Callback):
    def on_evaluation(self, run):
        raise RuntimeError(f"a mistake of yours at {time.time()}")

number, port = map(int, sys.argv[1:3])
configure(distributed=Launch(f"127.0.0.1:{port}", 2, number, heartbeat_timeout_s=HEARTBEAT_S))
fields = {"rollout_steps": 8, "eval_frequency": 80, "agent.hidden_sizes": (4,)}
config = create_config("cartpole", "pqn", num_envs=32, steps_per_env=800, **fields)
results = train_and_evaluate(config, sys.argv[3], callbacks=[CALLBACK()])
print(results.stopped, len(results.evaluations), results.training[-1]["env/gravity"])
"""


def both_with_callback(name, folder):
    """Start two processes of a training with one of the callbacks."""
    port = free_port()
    code = CALLBACK.replace("CALLBACK", name).replace("HEARTBEAT_S", str(HEARTBEAT_S))
    return [
        started(sys.executable, "-c", code, number, port, folder / "run") for number in range(2)
    ]


@pytest.mark.slow
def test_process_0_alone_calls_the_callbacks_and_they_change_and_end_all(tmp_path):
    _, printed, said = end_of(both_with_callback("Stops", tmp_path))
    of_both = "callback 2 3.7"
    assert printed == [["called at 10", "called at 20", of_both], [of_both]], said


@pytest.mark.slow
def test_an_exception_of_a_callback_ends_all_processes_within_the_heartbeat(tmp_path):
    codes, _, said = end_of(both_with_callback("Raises", tmp_path))
    ended_at = time.time()
    assert all(codes)
    raised_at = float(re.search("RuntimeError: a mistake of yours at (.*)", said[0])[1])
    assert ended_at - raised_at < HEARTBEAT_S + SLACK_S


@pytest.mark.slow
def test_processes_that_nobody_introduces_are_refused_in_a_sentence(tmp_path):
    command = ["train", "--env", "cartpole", "--agent", "ppo", "--distributed"]
    done = ended(MYRIAD, *command, cwd=tmp_path, code=2)
    assert "Start them with srun or mpirun, or give --coordinator" in done.stderr
    assert len(done.stderr.splitlines()) == 1
