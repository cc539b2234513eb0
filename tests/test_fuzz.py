"""Whatever is typed, written or passed ends as promised: in exit code 0 or 2, or in our own error.

Hypothesis draws command lines, files and calls from the options, fields and arguments that exist,
most of them with one mistake. `make test-long` draws thousands, and numbers at the ends of their
ranges, whose work is interrupted if it takes long.
"""

import contextlib
import dataclasses
import functools
import inspect
import io
import math
import os
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import myriad
from myriad import MyriadError, list_agents, list_envs, make_env
from myriad.agents import AGENTS
from myriad.autotune import autotune, suggest_scan_chunk_size
from myriad.cli import main
from myriad.cli.arguments import COMMANDS, load_command
from myriad.cli.train import TrainingFlags
from myriad.envs import ENVIRONMENTS
from myriad.ranges import range_in, ranges_of
from myriad.rendering.video import record
from myriad.settings import Settings
from myriad.training.config import TrainingConfig

LONGEST_S = 20
# Files that no command and no call may touch.
FOREIGN = {"notes/precious.txt": "not yours", "notes/metrics.jsonl": "{}\n", "bad.toml": "env = ["}
TINY: dict[str, Any] = {"num_envs": 2, "steps_per_env": 8, "eval_rollouts": 2, "eval_max_steps": 8}
# Switches that would let a tiny training take long, start processes, or need a network.
LEFT_OUT = {"compile", "compile_mode", "auto_tune", "n_trials", "distributed", "storage", "env"}
LEFT_OUT |= {"options", "given", "default_params", "action_space"}
PATHS = ["notes", "notes/precious.txt", "missing/x", "", "/dev/null", "/dev/full", "/proc", "run"]
PATHS += ["run/config.toml", "x" * 300, "new folder", "../outside/x", "bad.toml", "fifo"]
OUTPUTS = ["out.gif", "out.mp4", "out.txt", "missing/out.gif", "notes", "/dev/full", "/proc/x.gif"]
TAKE_PATHS = ("config", "resume", "run_folder", "space", "start_from", "warm_start", "write_env")
# What stands on a command line or in a file.
WORDS = ["abc", "", " ", "-1", "0", "nan", "-inf", "1e400", "1.5", "9" * 5000, "none", "true", "[]"]
WORDS += ["[1, 2]", "{a = 1}", '"', "\n", "1\nx = 2", "é", "0x10", "--env", "-", "--", "[" * 3000]
WORDS += ["1979-05-27", "x" * 10_000, "\x07", "\udcff"]
WRONG_NUMBERS = [math.nan, -math.inf, 10**30, 1e39, 1.5, "abc", True, [1, "a"], {}]
# Objects of types that an argument hardly ever has.
OBJECTS = [None, 5, -1.5, math.nan, "", "abc", "\x00", "no/such/folder", b"abc", [], [None], {}]
OBJECTS += [{"a": {}}, set(), object(), type, len, 10**400, np.float32(0.5), np.arange(3), True]
OBJECTS += [jnp.zeros(2), ValueError(), Path("no/such"), ..., range(3), (1, (2,)), [{}], 1j]
OBJECTS += [[1] * 10**5, jax.ShapeDtypeStruct((2,), "int32")]


def mostly_one(few):
    """Draw how many mistakes there are, or a list with so many of `few`."""
    sizes = st.sampled_from([0, *[1] * 8, 2, 3])
    return sizes.flatmap(lambda size: st.lists(few, min_size=size, max_size=size))


def numbers(declared, default, *, ends):
    """Draw values of a field, most of which its range refuses."""
    if declared is None:
        return st.sampled_from([*WORDS, "cartpole", "ppo", 5, -1, 0.5, default])
    outside = [*WRONG_NUMBERS, declared.least - 1, declared.most * 2 + 1]
    inside = [default, min(max(declared.least, 2), declared.most), *declared.words]
    inside += [declared.least, declared.most, math.inf] if ends else []
    return st.sampled_from([outside, outside, WORDS, inside]).flatmap(st.sampled_from)


@functools.cache
def fields_of(*kinds):
    """Return the range and the default of each field that can be set."""
    of_config = ranges_of(TrainingConfig)
    return {
        field.name: (ranges_of(kind).get(field.name, of_config.get(field.name)), field.default)
        for kind in kinds
        for field in dataclasses.fields(kind)
        if field.name not in LEFT_OUT
    }


def options_of(owner, name):
    """Return the fields of an agent's or an environment's options."""
    if owner == "agent":
        return fields_of(AGENTS.load(name))
    return fields_of(ENVIRONMENTS.load(name), type(make_env(name).default_params))


def required(command, env, agent, output):
    """Return what a command needs to do a little work."""
    both = ["--env", env, "--agent", agent]
    sizes = [word for name, size in TINY.items() for word in (flag_of(name), str(size))]
    return {
        "train": [*both, "--quiet", *sizes],
        "doctor": both,
        "settings": both,
        "render": ["--env", env, "--output", output, "--steps", "3"],
        "evaluate": ["run"],
        "export": ["run", "--format", "stablehlo", "--output", output],
        "plot": ["run", "--output", output],
        "autotune": ["--show"],
        "tune": ["--env", env, "--n-trials", "0", "--study-name", "fuzzed", "--quiet"],
    }.get(command, [])


def flag_of(name):
    return f"--{name.replace('_', '-')}"


@st.composite
def flags(draw, command, ends):
    """Draw one flag and its value, of the command or of an agent or an environment."""
    kind = load_command(command)
    prefix, named, known = "", "", fields_of(kind)
    if issubclass(kind, TrainingFlags) and draw(st.booleans()):
        prefix = draw(st.sampled_from(["agent", "env"]))
        named = draw(st.sampled_from(list_agents() if prefix == "agent" else list_envs()))
        known = options_of(prefix, named)
    # Some agents have no hyperparameters.
    name = draw(st.sampled_from([*known, "surprise"]))
    declared, default = known.get(name, (None, None))
    if not prefix and isinstance(default, bool):
        own = flag_of(name)
        return [draw(st.sampled_from([own, f"--no-{own[2:]}", f"{own}=x"]))]
    value = draw(numbers(declared, default, ends=ends))
    if name in TAKE_PATHS and not prefix:
        value = draw(st.sampled_from(PATHS))
    if name in ("export", "output"):
        value = draw(st.sampled_from(OUTPUTS))
    text = str(value).lower() if value is None or isinstance(value, bool) else str(value)
    if not prefix:
        return draw(st.sampled_from([[flag_of(name), text], [f"{flag_of(name)}={text}"]]))
    return [f"--{prefix}", named, f"--{prefix}.{flag_of(name)[2:]}", text]


@st.composite
def command_lines(draw, ends):
    """Draw the arguments of one command, sometimes in another order."""
    command = draw(st.sampled_from([*COMMANDS, *["train"] * 8, "evaluate", "render", "autotune"]))
    # `cartpole` and the agents that don't learn compile within a second.
    env = draw(st.sampled_from([*["cartpole"] * 6, *list_envs()]))
    agent = draw(st.sampled_from([*list_agents(), *["random", "pid"] * 3]))
    argv = [command, *required(command, env, agent, draw(st.sampled_from(OUTPUTS)))]
    argv += [word for words in draw(mostly_one(flags(command, ends))) for word in words]
    spoiling = draw(st.sampled_from(["nothing"] * 20 + ["order", "word"]))
    if spoiling == "order":
        argv = draw(st.permutations(argv))
    if spoiling == "word":
        argv[draw(st.integers(0, len(argv) - 1))] = draw(st.sampled_from(WORDS))
    return argv, {}


@st.composite
def configuration_files(draw, ends):
    """Draw a configuration with a mistake in a value or in its letters."""
    env = draw(st.sampled_from(["cartpole", *list_envs()]))
    agent = draw(st.sampled_from(["random", "pid", *list_agents()]))
    table = {"env": env, "agent": agent, **TINY, "env_options": {}, "agent_options": {}}
    owners = st.sampled_from(["", "env", "agent"])
    for owner in draw(mostly_one(owners)):
        name = env if owner == "env" else agent
        known = options_of(owner, name) if owner else fields_of(load_command("train"))
        field = draw(st.sampled_from([*known, "surprise"]))
        value = draw(numbers(*known.get(field, (None, None)), ends=ends))
        (table[f"{owner}_options"] if owner else table)[field] = value
    try:
        text = tomli_w.dumps(table)
    except (TypeError, ValueError):  # a value that TOML doesn't know
        text = "\n".join(f"{name} = {value}" for name, value in table.items())
    for place in draw(st.sampled_from([[]] * 5 + [[0.3], [0.1, 0.5, 0.9]])):
        letter = draw(st.sampled_from(['"', "[", "=", "\n", "\x00", "é", ""]))
        cut = int(place * len(text))
        text = text[:cut] + letter + text[cut + 1 :]
    return ["train", "--quiet", "--config", "mine.toml"], {"mine.toml": text}


@st.composite
def settings_files(draw, ends):
    """Draw a `.env`, with a mistake in a name, in a value or in its letters."""
    names = [name for setting in Settings.table().values() for name in setting.names]
    names += [names[0][1:], f"{names[0]}X"]
    values = [*WORDS, "true", "false", "64", "8k", "ture", "\x00", "run", "${HOME}"]
    lines = ["# A=1", "", "A = 'b' # c", "export B", "C D", "'E'=1", "F='", "=", "G=${HOME}"]
    lines = draw(st.lists(st.sampled_from(lines), max_size=2))
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(["{}={}", "export {}={}", "{} = '{}'", '{}="{}"']))
        setting = form.format(draw(st.sampled_from(names)), draw(st.sampled_from(values)))
        lines.insert(draw(st.integers(0, len(lines))), setting)
    return ["train", *required("train", "cartpole", "pid", "")], {".env": "\n".join(lines)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work beside files of others and a finished run."""
    monkeypatch.chdir(tmp_path)
    for name, text in FOREIGN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    os.mkfifo(tmp_path / "fifo")
    myriad.train_and_evaluate(tiny("random"), "run", quiet=True)
    return tmp_path


def tiny(agent):
    more = {"rollout_steps": 4} if agent == "ppo" else {}
    return myriad.create_config("cartpole", agent, **TINY, **more)


def foreign():
    """Return what the files hold that nothing may touch."""
    return {name: Path(name).read_bytes() for name in [*FOREIGN, "run/config.toml"]}


@contextlib.contextmanager
def alone(**variables):
    """Undo what a command or a call changes in this process, and interrupt it if it takes long."""
    before, here = foreign(), Path.cwd()
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(LONGEST_S)
    try:
        with (
            mock.patch.dict(os.environ, variables),
            mock.patch.dict(ENVIRONMENTS._targets),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
        os.chdir(here)
    assert foreign() == before


def run(argv, files):
    """Run a command with files of its own; return its exit code and what it says."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="case-") as own:
        for name, text in files.items():
            Path(own, name).write_bytes(text.encode(errors="surrogateescape"))
        argv = [f"{own}/mine.toml" if word == "mine.toml" else word for word in argv]
        if argv[:1] == ["train"] and not any("-folder" in w or "-resume" in w for w in argv):
            argv = [*argv, "--run-folder", f"{own}/run"]
        with (
            alone(MYRIAD_HOME=own),
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(said),
        ):
            if ".env" in files:  # which may name another home
                del os.environ["MYRIAD_HOME"]
                os.chdir(own)
            try:
                code = main(argv)
            except SystemExit as end:  # after --help or --version
                code = end.code or 0
    return code, said.getvalue()


# 0 marks the few examples of `make test`, any other number a batch of many.
BATCHES = [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 6))]


def attacked(examples, batch, short, long):
    """Hand each drawn example to the decorated function."""

    def run_all(check):
        drawn = settings(
            max_examples=long if batch else short,
            phases=[Phase.generate],  # to shrink a slow one would take long
            database=None,
            suppress_health_check=list(HealthCheck),
        )(given(examples(ends=batch > 0))(check))
        seed(batch)(drawn)()
        jax.clear_caches()

    return run_all


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("examples", "short", "long"),
    [(command_lines, 15, 300), (configuration_files, 6, 100), (settings_files, 6, 60)],
    ids=["command lines", "configurations", "settings"],
)
def test_a_command_does_its_work_or_refuses(examples, short, long, batch, folder):
    @attacked(examples, batch, short, long)
    def check(case):
        code, said = run(*case)
        reports = case[0][0] in ("doctor", "settings")  # 1 if something can't be had
        assert code in (0, 2, 130) or (reports and code == 1), said
        assert "Traceback" not in said


@functools.cache
def targets():
    """Return the public functions, what fits into their arguments by name, and a rollout."""
    env = make_env("cartpole")
    agent = myriad.make_agent("random", env)
    rollout = myriad.Rollout(env, agent, 2, 4)
    config = tiny("ppo")
    functions = [getattr(myriad, name) for name in myriad.__all__ if name != "MyriadError"]
    functions += [rollout.init, rollout.run, rollout.run_chunk, rollout.record_chunk]
    functions += [autotune, suggest_scan_chunk_size, record]
    functions += [rollout.summary, TrainingConfig.from_toml, myriad.make_train(config)]
    fitting = {"env": env, "agent": agent, "config": config, "key": myriad.make_key(0)}
    fitting |= {"agent_state": config.learner.init(myriad.make_key(0), 2)}
    fitting |= {"run_folder": "run", "name_or_env": "CartPole-v1", "text": config.to_toml()}
    fitting |= {"path": "out.gif", "quiet": True, "seconds": 0, "seed": 0, "num_envs": 2}
    fitting |= {"scan_chunk_size": 4, "num_episodes": 2, "num_steps": 3, "steps_per_env": 8}
    return functions, fitting, rollout


@st.composite
def calls(draw, ends):
    """Draw a public function and its arguments, most often with one that is wrong."""
    functions, fitting, rollout = targets()
    function = draw(st.sampled_from(functions))
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    fits = fitting | {"name": "ppo" if function is myriad.make_agent else "cartpole"}
    fits["state"] = rollout.init(0)  # a new one, since a chunk takes its arrays over
    if function in (myriad.create_config, suggest_scan_chunk_size):
        fits |= {"env": "cartpole", "agent": "pid"}
    arguments = {
        each.name: fits.get(each.name)
        for each in parameters
        if each.default is each.empty or each.name in ("seconds", "quiet")
    }
    for each in draw(mostly_one(st.sampled_from(parameters))) if parameters else ():
        values = st.sampled_from(OBJECTS)
        if declared := range_in(each.annotation):
            values |= numbers(declared, fits.get(each.name, 2), ends=ends)
        arguments[each.name] = draw(values)
    options = {myriad.make_env: ("env", "cartpole"), myriad.make_agent: ("agent", "ppo")}
    if function in options and draw(st.booleans()):
        known = options_of(*options[function])
        name = draw(st.sampled_from([*known, "surprise"]))
        arguments[name] = draw(numbers(*known.get(name, (None, None)), ends=ends))
    return function, arguments


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES)
def test_whatever_a_public_function_is_given_it_answers_or_raises_our_error(batch, folder):
    @attacked(calls, batch, 30, 600)
    def check(case):
        function, arguments = case
        interrupted = KeyboardInterrupt  # what is allowed may be long
        with alone(MYRIAD_HOME=str(folder / "home")), contextlib.suppress(MyriadError, interrupted):
            # Some take their own arguments by position only, since fields may have any name.
            signature = inspect.signature(function).parameters.values()
            first = [each.name for each in signature if each.kind is each.POSITIONAL_ONLY]
            positional = [arguments.pop(name) for name in first if name in arguments]
            function(*positional, **arguments)
