"""A training from end to end: the same for every chunk, resumed after a kill, all on disk."""

import dataclasses
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import (
    create_config,
    evaluate,
    load_agent,
    make_env,
    make_train,
    resume,
    train_and_evaluate,
)
from myriad.agents import list_agents, make_learner
from myriad.envs import list_envs
from myriad.errors import (
    DivergedError,
    InvalidArgumentError,
    MyriadError,
    ShortTrainingWarning,
    UnknownNameError,
)
from myriad.random import make_key
from myriad.training.checkpoint import Checkpoints
from myriad.training.config import TrainingConfig
from myriad.training.evaluation import Evaluation
from myriad.training.logging.progress import Progress
from myriad.training.logging.run_folder import RunFolder
from myriad.training.logging.trackers import TRACKERS
from myriad.training.loop import LearningLoop
from myriad.training.programs import CompiledTraining
from myriad.training.trainer import environment_record
from myriad.xla import count_compilations

ROOT = Path(__file__).parents[2]
SLOW = pytest.mark.slow
# One small layer: what a training does around a network does not depend on its size.
NETWORK = {"agent.hidden_sizes": (8,)}
SMALL = {
    "ppo": {"rollout_steps": 8, "agent.num_minibatches": 2, "agent.num_epochs": 2} | NETWORK,
    "pqn": {"rollout_steps": 8} | NETWORK,
    "dqn": {"buffer_size": 512} | NETWORK,
    "pid": {},
}


@pytest.fixture(autouse=True)
def _away_from_the_users_cache(monkeypatch):
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", "off")


def small_config(agent, **fields):
    shape = {"steps_per_env": 256, "eval_frequency": 64, "eval_rollouts": 4, "env.max_steps": 50}
    return create_config("cartpole", agent, **({"num_envs": 4} | shape | SMALL[agent] | fields))


def assert_same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(left), jax.device_get(right))


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent", [pytest.param(name, marks=() if name == "pid" else SLOW) for name in SMALL]
)
def test_a_training_is_the_same_bits_for_every_chunk(agent, tmp_path):
    runs = [
        train_and_evaluate(small_config(agent, scan_chunk_size=n), tmp_path / str(n))
        for n in (1, 24, 1_000)
    ]
    for run in runs[1:]:
        assert_same_bits(runs[0].agent_state, run.agent_state)
        assert list(runs[0].training) == list(run.training)
        assert list(runs[0].evaluations) == list(run.evaluations)
    assert [row["steps"] for row in runs[0].evaluations] == [256, 512, 768, 1024]


@pytest.mark.slow
def test_nothing_compiles_once_the_training_runs(tmp_path):
    train_and_evaluate(small_config("ppo"), tmp_path / "warm")
    with count_compilations() as compilations:
        train_and_evaluate(small_config("ppo", scan_chunk_size=24), tmp_path / "run")
    assert sorted(compilations.names) == ["jit(_evaluate)", "jit(init_from)", "jit(run)"]


@pytest.mark.slow
def test_the_run_folder_holds_everything(tmp_path):
    results = train_and_evaluate(small_config("ppo"), tmp_path / "run")
    folder = tmp_path / "run"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [256, 512, 768, 1024]
    record = json.loads((folder / "environment.json").read_text())
    assert record["versions"]["jax"] == jax.__version__
    assert {"hardware", "matmul_precision"} <= record.keys()
    frame = results.training.to_pandas()
    assert list(frame["update"]) == [8, 16, 24, 32]
    results.evaluations.to_csv(tmp_path / "evaluations.csv")
    assert (tmp_path / "evaluations.csv").read_text().startswith("update,steps,return,")
    config, _, agent = load_agent(folder)
    assert config == results.config
    assert_same_bits(agent.state, results.agent_state)
    again = evaluate(config, agent.state, num_episodes=8)
    assert again.shape == (8,)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".lock"]


@pytest.mark.slow
def test_a_folder_with_a_run_in_it_is_not_overwritten(tmp_path):
    train_and_evaluate(small_config("pid"), tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match="already holds a run"):
        train_and_evaluate(small_config("pid"), tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match="is not a run folder"):
        resume(tmp_path / "nowhere")


def test_a_tracker_that_is_not_there_leaves_no_folder(tmp_path):
    with pytest.raises(
        UnknownNameError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"
    ):
        train_and_evaluate(small_config("pid", log_to=["tensorbord"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_interrupt_before_the_first_update_closes_what_was_opened(tmp_path, monkeypatch):
    closed = []

    class Recorded:
        def __init__(self, folder, config):
            pass

        @staticmethod
        def library():
            pass

        def close(self):
            closed.append("tracker")

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(TRACKERS, "recorded", Recorded)
    monkeypatch.setattr(Progress, "close", lambda _: closed.append("progress"))
    monkeypatch.setattr(CompiledTraining, "first_state", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_and_evaluate(small_config("pid", log_to=["recorded"]), tmp_path / "run")
    assert closed == ["tracker", "progress"]


@pytest.mark.slow
def test_an_interrupt_right_after_resuming_leaves_the_only_checkpoint_alone(tmp_path, monkeypatch):
    run_window = CompiledTraining.run_window

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        return run_window(self, *args)

    monkeypatch.setattr(CompiledTraining, "run_window", interrupted)
    with pytest.raises(KeyboardInterrupt, match="goes on"):
        train_and_evaluate(small_config("pid"), tmp_path / "run")
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    before = saved.stat().st_ino
    with pytest.raises(KeyboardInterrupt, match="goes on"):
        resume(tmp_path / "run")
    assert saved.stat().st_ino == before


@pytest.mark.slow
def test_a_finished_run_resumes_to_itself(tmp_path):
    first = train_and_evaluate(small_config("ppo"), tmp_path / "run")
    again = resume(tmp_path / "run")
    assert_same_bits(first.agent_state, again.agent_state)
    assert list(first.training) == list(again.training)


@pytest.mark.slow
def test_a_target_stops_the_training(tmp_path):
    results = train_and_evaluate(small_config("pid", target_return=10.0), tmp_path / "run")
    assert results.stopped == "target"
    assert len(results.evaluations) == 1


@pytest.mark.slow
@SLOW
def test_a_nan_stops_the_run_and_says_where(tmp_path):
    config = small_config("ppo", **{"agent.learning_rate": 1e30, "agent.max_grad_norm": 1e30})
    with pytest.raises(
        DivergedError, match=r"NaN or infinity in .*by update \d+; no checkpoint was saved before"
    ):
        train_and_evaluate(config, tmp_path / "run")


@pytest.mark.slow
def test_an_infinity_is_bad_where_the_agent_sees_it_and_a_nan_everywhere():
    env = make_env("cartpole")
    loop = LearningLoop(env, make_learner("random", env), 4)
    state = jax.jit(loop.init)(make_key(0))
    run = jax.jit(loop.run)

    def bad_parts(**changed):
        batch_state = dataclasses.replace(state.batch_state, **changed)
        report = run(dataclasses.replace(state, batch_state=batch_state), np.int32(0), np.bool_(0))
        return report[1].is_bad.tolist()

    obs = state.batch_state.obs
    env_state = state.batch_state.env_state
    assert bad_parts() == [False, False, False, False]
    assert bad_parts(obs=obs.at[1, 2].set(-jnp.inf)) == [False, False, True, False]
    assert bad_parts(episode_return=jnp.full(4, jnp.inf)) == [False, False, True, False]
    for number, is_bad in ((jnp.inf, False), (jnp.nan, True)):
        spoilt = jax.tree.map(
            lambda leaf, number=number: (
                jnp.full_like(leaf, number) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
            ),
            env_state,
        )
        assert bad_parts(env_state=spoilt) == [False, False, False, is_bad]


@pytest.mark.slow
@SLOW
def test_a_training_too_short_to_learn_gives_a_warning(tmp_path):
    config = small_config("ppo", steps_per_env=72)
    sentence = "72 steps of each of 4 environments are 9 updates of ppo, too few"
    with pytest.warns(ShortTrainingWarning, match=sentence) as caught:
        train_and_evaluate(config, tmp_path / "run")
    assert caught[0].filename == __file__


@pytest.mark.slow
@SLOW
def test_a_training_that_ends_before_it_learns_gives_a_warning(tmp_path):
    sizes = {"steps_per_env": 64, "agent.learning_starts": 4 * 60}
    config = small_config("dqn", **sizes)
    with pytest.warns(ShortTrainingWarning, match="are 64 updates of dqn, of which 5 learn, too"):
        train_and_evaluate(config, tmp_path / "run")


@pytest.mark.slow
def test_an_evaluation_may_be_longer_than_32_bits_count():
    env = make_env("cartpole", max_steps=9)
    evaluation = Evaluation(env, make_learner("random", env), 3, max_steps=2**31)
    returns, ended = jax.jit(evaluation.returns)(None, make_key(0))
    assert ended.all()
    assert float(returns.max()) <= 9


def test_the_longest_window_is_one_that_a_chunk_can_count():
    sizes = dict.fromkeys(("steps_per_env", "eval_frequency", "scan_chunk_size"), 2**40)
    resolved = create_config("cartpole", "random", **sizes).resolve()
    assert resolved.updates_per_eval == np.iinfo(np.int32).max


def test_a_pure_training_has_no_target():
    with pytest.raises(InvalidArgumentError, match="target_return must be None, but is 450"):
        make_train(small_config("ppo", target_return=450.0))


@pytest.mark.slow
@SLOW
def test_many_seeds_train_in_one_program(tmp_path):
    config = small_config("ppo")
    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    results = jax.jit(jax.vmap(make_train(config)))(keys)
    assert results["eval_return"].shape == (3, 4, 4)
    assert make_train(config).steps.tolist() == [256, 512, 768, 1024]
    assert len(np.unique(results["metric_sums"]["loss"][:, -1])) == 3


def grid():
    """Every agent in every environment; where a network or an estimator compiles, it is slow."""
    for agent, env in itertools.product(list_agents(), list_envs()):
        is_slow = agent in {"dqn", "ppo", "pqn"} or (agent == "random" and env.endswith("sysid"))
        yield pytest.param(agent, env, marks=SLOW if is_slow else ())


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env"), list(grid()))
def test_every_agent_trains_in_every_environment_or_says_why_not(env, agent, tmp_path):
    refusal = None
    network = NETWORK if agent in {"ppo", "pqn", "dqn"} else {}
    try:
        config = create_config(env, agent, num_envs=2, eval_rollouts=2, eval_max_steps=8, **network)
    except MyriadError as error:
        refusal = str(error)
    if refusal is not None:
        assert agent in refusal.lower()
        assert "\n" not in refusal
        return
    unit = config.resolve().learner.steps_per_update
    config = config.model_copy(update={"steps_per_env": 2 * unit, "eval_frequency": unit})
    results = train_and_evaluate(config, tmp_path / "run")
    assert len(results.evaluations) == 2


KILLED = """
import sys
from myriad import create_config, configure, resume, train_and_evaluate
from pathlib import Path
configure()
folder, agent = Path(sys.argv[1]), sys.argv[2]
options = {"num_envs": 4, "steps_per_env": 20_000, "eval_frequency": 1_000, "eval_rollouts": 2}
options |= {"rollout_steps": 8} if agent == "ppo" else {"buffer_size": 1_000}
config = create_config("cartpole", agent, checkpoint_every_s=0.0, scan_chunk_size=200, **options)
print("begins", flush=True)
resume(folder) if (folder / "config.toml").exists() else train_and_evaluate(config, folder)
"""


def run_killed(folder: Path, agent: str, after_s: float | None, env: dict) -> bool:
    """Start or resume the run, kill it after `after_s` seconds, return whether it had ended."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), agent],
        stdout=subprocess.PIPE,
        env=env,
        cwd=ROOT,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        if after_s is not None:
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait() == 0


@pytest.mark.slow
@SLOW
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_a_killed_run_resumes_to_the_same_bits(agent, tmp_path):
    env = os.environ | {
        "MYRIAD_COMPILATION_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    start = time.monotonic()
    assert run_killed(tmp_path / "whole", agent, None, env)
    lasted, rng = time.monotonic() - start, np.random.default_rng(0)
    kills, wanted = 0, int(os.environ.get("MYRIAD_KILLS", "3"))
    while not run_killed(
        tmp_path / "killed", agent, rng.uniform(0.2, 0.8) * lasted if kills < wanted else None, env
    ):
        kills += 1
    (config, _, whole), (_, _, killed) = (
        load_agent(tmp_path / name) for name in ("whole", "killed")
    )
    assert config.num_envs == 4
    assert_same_bits(whole.state, killed.state)
    histories = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert histories[0] == histories[1]


@pytest.mark.slow
@SLOW
def test_an_interrupt_saves_first(tmp_path):
    env = os.environ | {"MYRIAD_COMPILATION_CACHE": "off", "PYTHONPATH": str(ROOT)}
    script = KILLED.replace("20_000", "200_000_000").replace(
        "checkpoint_every_s=0.0", "checkpoint_every_s=1e6"
    )
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder), "ppo"], env=env, cwd=ROOT
    ) as process:
        try:
            while (
                not (folder / "metrics.jsonl").exists()
                or len((folder / "metrics.jsonl").read_text()) < 100
            ):
                assert process.poll() is None
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) != 0
        finally:
            process.kill()
    _, _, agent = load_agent(folder)
    assert agent.state is not None


def test_only_large_minibatches_are_shared():
    env = make_env("cartpole")
    small, large = (make_learner("ppo", env, rollout_steps=steps) for steps in (64, 128))
    assert small.default_num_devices(16, 2) == 1
    assert large.default_num_devices(1024, 2) == 2


@pytest.mark.parametrize("num_episodes", [0, True, 2.0, "8"])
def test_a_number_of_episodes_that_cannot_be_is_refused_in_a_sentence(num_episodes):
    sentence = f"num_episodes must be an integer from 1 to 2,147,483,647, but got {num_episodes!r}."
    with pytest.raises(InvalidArgumentError, match=re.escape(sentence)):
        evaluate(small_config("pid"), None, num_episodes)


def write_run(folder, config_toml, agent, state):
    """Leave what an interrupted run leaves: its configuration and a checkpoint."""
    config = TrainingConfig.from_toml(config_toml)
    run = RunFolder.create(folder, config_toml, environment_record(config))
    checkpoint = dataclasses.replace(state, agent=agent)
    Checkpoints(run.checkpoints).save(1, checkpoint)


@pytest.mark.slow
def test_a_run_of_an_older_version_is_refused_in_a_sentence(tmp_path):
    resolved = small_config("dqn").resolve()
    loop = LearningLoop(resolved.env, resolved.learner, resolved.num_envs)
    state = loop.init(make_key(0))
    agent = state.agent
    fields = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    # The names of version 0.1.
    older = fields | {"optimizer": fields["opt_state"], "observations": fields["obs_stats"]}
    del older["opt_state"], older["obs_stats"]
    write_run(tmp_path / "state", resolved.config.to_toml(), older, state)
    with pytest.raises(
        InvalidArgumentError,
        match=r"checkpoint .* holds agent\.obs_stats\.\w+ as nothing, but this configuration needs",
    ):
        load_agent(tmp_path / "state")
