"""Command lines and configuration files, drawn from the fields of the commands and their ranges."""

import dataclasses
import functools
from random import Random
from typing import Any

import tomli_w

from myriad import list_agents, list_envs, make_env
from myriad.agents import AGENTS
from myriad.cli.arguments import COMMANDS, load_command
from myriad.cli.switches import switches_of
from myriad.cli.train import TrainingFlags
from myriad.envs import ENVIRONMENTS
from myriad.presets import list_presets
from myriad.ranges import Range, ranges_of
from myriad.settings import Settings
from tests.attack.cases import Case
from tests.attack.values import WORDS, number_inside, number_outside, word

# So small that a training that runs is over in seconds.
TINY = {
    "--num-envs": "2",
    "--steps-per-env": "8",
    "--eval-rollouts": "2",
    "--eval-max-steps": "8",
}
PATHS = [
    "notes",
    "notes/precious.txt",
    "missing",
    "missing/x",
    "",
    "/dev/null",
    "/dev/full",
    "/proc",
]
PATHS += ["run", "run/config.toml", "x" * 300, "new folder", "../outside/x", "bad.toml", "fifo"]
OUTPUTS = ["out.gif", "out.mp4", "out.txt", "missing/out.gif", "notes", "/dev/full", "/proc/x.gif"]

# Right values of flags that take words.
CHOICES = {
    "agent": list_agents(),
    "compile_mode": ["aot", "cached", "jit"],  # off takes longer than the attack waits
    "env": list_envs(),
    "log_to": ["tensorboard", "wandb"],
    "preset": sorted({preset.name for preset in list_presets()}),
}
# Lines of a `.env` that set nothing of ours, or nothing at all.
LINES = ["# USE_BF16=true", "", "A = 'b' # c", "export B", "C D", "'E'=1", "F='", "=", "G=${HOME}"]


def command_line(seed: int, number: int) -> Case:
    """Return one command line. Most have one mistake, some have none, some have several."""
    random = Random(f"{seed} command line {number}")
    command = random.choice([*COMMANDS, *["train"] * 9, "evaluate", "render", "autotune"])
    argv = [command, *_required(random, command)]
    for _ in range(random.choice([0, *[1] * 12, 2, 2, 3])):
        argv += _flag(random, command)
    if random.random() < 0.03:
        random.shuffle(argv)
    if random.random() < 0.03:
        argv[random.randrange(len(argv))] = random.choice(WORDS)
    return Case("command line", number, argv)


def configuration_file(seed: int, number: int) -> Case:
    """Return the text of one configuration, with a mistake in a value or in its letters."""
    random = Random(f"{seed} file {number}")
    env = random.choice(list_envs())
    agent = random.choice(list_agents())
    table: dict[str, Any] = {"env": env, "agent": agent, "env_options": {}, "agent_options": {}}
    table |= {flag.removeprefix("--").replace("-", "_"): int(size) for flag, size in TINY.items()}
    for _ in range(random.choice([0, *[1] * 12, 2])):
        owner = random.choice(["train", "env_options", "agent_options"])
        fields = {
            "train": _fields(load_command("train")),
            "env_options": _fields(*_of_environment(env)),
            "agent_options": _fields(AGENTS.load(agent)),
        }[owner]
        name = random.choice([*fields, "surprise"])
        value = _value(random, *fields.get(name, (None, None)))
        (table if owner == "train" else table[owner])[name] = value
    text = _toml(table)
    for _ in range(random.choice([0, 0, 0, 1, 20])):
        place = random.randrange(len(text))
        text = (
            text[:place] + random.choice(['"', "[", "=", "\n", "\x00", "é", ""]) + text[place + 1 :]
        )
    return Case("file", number, [text])


def settings_file(seed: int, number: int) -> Case:
    """Return the text of one `.env`, with a mistake in a name, in a value or in its letters."""
    random = Random(f"{seed} settings {number}")
    names = [name for setting in Settings.table().values() for name in setting.names]
    lines = []
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        name = random.choice(names)
        if random.random() < 0.2:
            place = random.randrange(len(name))
            name = name[:place] + random.choice(["", "X", "_"]) + name[place + 1 :]
        value = random.choice(
            [*WORDS, "true", "false", "64", "8k", "ture", "\x00", "run", "${HOME}"]
        )
        lines.append(
            random.choice(["{}={}", "export {}={}", "{} = '{}'", '{}="{}"']).format(name, value)
        )
    lines += random.sample(LINES, random.randrange(3))
    random.shuffle(lines)
    return Case("settings", number, ["\n".join(lines)])


def _required(random: Random, command: str) -> list[str]:
    if random.random() < 0.05:
        return []
    env = random.choice([*list_envs(), "cartpole", "cartpole", "cartpole"])
    if command == "train":
        sizes = [word for flag, size in TINY.items() for word in (flag, size)]
        return ["--env", env, "--agent", random.choice(list_agents()), "--quiet", *sizes]
    if command in ("doctor", "settings"):
        return ["--env", env, "--agent", random.choice(list_agents())]
    if command == "presets":
        return ["--agent", random.choice(["ppo", "pqn", "dqn"])]
    if command == "autotune":
        return random.choice([["--show"], ["--clear"], ["--env", env, "--agent", "random"]])
    argv = {
        "render": ["--env", env, "--output", random.choice(OUTPUTS), "--steps", "3"],
        "evaluate": [random.choice(PATHS)],
        "cite": [random.choice(PATHS)],
        # Without trials, everything but the trainings is done.
        "tune": ["--env", env, "--n-trials", "0", "--study-name", "attacked", "--quiet"],
    }
    return argv.get(command, [])


def _flag(random: Random, command: str) -> list[str]:
    fields = _fields(load_command(command))
    dotted = issubclass(load_command(command), TrainingFlags) and random.random() < 0.5
    if dotted:
        owner = random.choice(["agent", "env"])
        name = random.choice(list_agents() if owner == "agent" else list_envs())
        kinds = [AGENTS.load(name)] if owner == "agent" else _of_environment(name)
        fields = _fields(*kinds)
        named = [f"--{owner}", name]
    # Some agents have no hyperparameters.
    is_unknown = not fields or random.random() < 0.05
    name = "surprise" if is_unknown else random.choice([*fields])
    flag = "--" + (f"{owner}." if dotted else "") + name.replace("_", "-")
    declared, default = fields.get(name, (None, None))
    if default is False and not dotted:
        return [flag]
    if not dotted and name.replace("_", "-") in switches_of(load_command(command)):
        flag = random.choice([flag, f"--no-{flag[2:]}"])
        # Trainings without programs take longer than the attack waits.
        flag = flag.replace("--no-compile", "--compile")
        return [flag if random.random() < 0.8 else f"{flag}={random.choice(['true', 'x', ''])}"]
    value = _value(random, declared, default)
    text = word(value if dotted else _value_of_flag(random, name, value))
    said = random.choice([[flag, text], [f"{flag}={text}"]])
    return [*named, *said] if dotted else said


def _value_of_flag(random: Random, name: str, otherwise: Any) -> Any:
    """Return a value for a flag that takes paths or certain words."""
    if name in CHOICES and random.random() < 0.6:
        return random.choice(CHOICES[name])
    if name in ("config", "resume", "run_folder", "space", "storage"):
        return random.choice(PATHS)
    return random.choice(OUTPUTS) if name in ("export", "output") else otherwise


def dotted_option(random: Random, owner: str) -> tuple[str, Any]:
    """Return a hyperparameter of PPO or a parameter of CartPole, and a value for it."""
    kinds = [AGENTS.load("ppo")] if owner == "agent" else _of_environment("cartpole")
    fields = _fields(*kinds)
    name = random.choice([*fields, "surprise"])
    return name, _value(random, *fields.get(name, (None, None)))


def _value(random: Random, declared: Range | None, default: Any) -> Any:
    draw = random.random()
    if declared is None:
        return default if draw < 0.05 else random.choice([*WORDS, "cartpole", "ppo", 5, -1, 0.5])
    if draw < 0.1:
        return number_inside(random, declared, default)
    return number_outside(random, declared) if draw < 0.7 else random.choice(WORDS)


@functools.cache
def _of_environment(name: str) -> tuple[Any, ...]:
    return ENVIRONMENTS.load(name), type(make_env(name).default_params)


@functools.cache
def _fields(*kinds: Any) -> dict[str, tuple[Range | None, Any]]:
    """Return the range and the default of each field that can be set."""
    fields = {}
    for kind in kinds:
        ranges = ranges_of(kind)
        for field in dataclasses.fields(kind):
            default = None if field.default is dataclasses.MISSING else field.default
            if field.name not in (
                "default_params",
                "options",
                "given",
                "env",
                "n_trials",
                "actuator",
                "action_space",
            ):
                fields[field.name] = (ranges.get(field.name), default)
    return fields


def _toml(table: dict[str, Any]) -> str:
    plain = {name: value for name, value in table.items() if value is not None}
    for owner in ("env_options", "agent_options"):
        plain[owner] = {k: v for k, v in plain[owner].items() if v is not None}
    try:
        return tomli_w.dumps(plain)
    except (TypeError, ValueError):
        return "\n".join(f"{name} = {value}" for name, value in plain.items())
