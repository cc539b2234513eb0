"""Scripted players and controllers: `learning.py --against scripted`.

The gene circuit's opponents are the best bang-bang and the best PID controller of a sweep. They are
chosen on some episodes and scored on others. If the agent sees future targets, the controllers also
steer to a target some intervals ahead. The games' opponents are scripted players that see what an
agent sees. Agents have their shipped defaults, or a preset's values.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import Row
from benchmarks.harness.tables import print_headers, print_row
from benchmarks.runner import Run

# A controller is chosen on different episodes than those that score it.
_CHOOSING_EPISODES = 256
_EPISODES = 1_024
_EVALUATION_SEED = 1_000_003
_SEEDS = 5
_OFFSETS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
_BANDS = (0.0, 0.01, 0.03)
_INTEGRALS = (0.0, 0.002, 0.01, 0.05)
_DERIVATIVES = (0.0, 1.0, 3.0, 6.0, 10.0, 20.0, 40.0)
_LIMITS = (0.05, 0.2, 1.0)
# Intervals, up to a quarter of the sine's period.
_PREVIEWS = (0, 1, 12, 16, 20, 25, 30)


@dataclasses.dataclass(frozen=True)
class Score:
    """A player's score: the mean over episodes and half of its 95% interval."""

    name: str
    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.half:.2g}"


@dataclasses.dataclass(frozen=True)
class Contest:
    """Agents against scripted players in one environment.

    Attributes:
        env: the environment's name.
        options: the environment's options.
        agents: the agents to train.
        steps: the steps of one training, over all environments.
        unit: the unit of a score.
        scale: the factor from a return to a score, which is negative if lower returns are better.
        players: a function that makes the players for the environment.
    """

    env: str
    options: dict[str, Any]
    agents: tuple[str, ...]
    steps: int
    unit: str
    scale: float
    players: Callable[[Any], Iterator[tuple[str, Any]]]

    @property
    def name(self) -> str:
        """The environment with its options."""
        return " ".join([self.env, *(f"{value}" for value in self.options.values())])

    def score(self, name: str, returns: Any) -> Score:
        """Return the score of a player's returns."""
        import numpy as np

        scores = np.asarray(returns, np.float64) * self.scale
        half = 1.96 * float(scores.std(ddof=1)) / math.sqrt(len(scores))
        return Score(name, float(scores.mean()), half)

    def is_better(self, score: Score, than: Score) -> bool:
        """Whether a score beats another one by more than both intervals."""
        return math.copysign(1.0, self.scale) * (score.mean - than.mean) > score.half + than.half


def compare(run: Run) -> None:
    """Train agents in every contest, or those of `--env`, and print them beside the players."""
    from myriad.envs import ENVIRONMENTS
    from myriad.presets import list_presets

    options = run.options
    envs = [ENVIRONMENTS.resolve(name) for name in options.env or ()]
    presets = [each for each in list_presets() if each.name == options.preset]
    chosen = []
    for contest in contests():
        agents = contest.agents
        if options.preset is not None:
            named = {each.agent for each in presets if each.env in (None, contest.env)}
            agents = [agent for agent in agents if agent in named]
        if agents and contest.env in (envs or [contest.env]):
            chosen.append((contest, agents))
    if not chosen:
        preset = "" if options.preset is None else f" with a preset {options.preset!r}"
        known = ", ".join(sorted({each.env for each in contests()}))
        raise SuiteError(f"no agent{preset} competes in {', '.join(envs)}; give {known}.")
    print_headers(
        "contest", "scripted players", "agent", "trainings", "better than the best player"
    )
    for contest, agents in chosen:
        for row in _held(contest, agents, options):
            print_row(*row.values())
            run.save(row)


def contests() -> list[Contest]:
    """Return every contest."""
    circuit = {"agents": ("ppo", "pqn"), "steps": 4_000_000, "players": _controllers}
    circuit |= {"unit": "molecules off", "scale": -1 / 288}
    game = {"agents": ("ppo",), "unit": "return", "scale": 1.0}
    return [
        Contest("gene-circuit-control", {"target": "constant"}, **circuit),
        Contest("gene-circuit-control", {"target": "sine"}, **circuit),
        Contest("gene-circuit-control", {"target": "sine", "n_horizon": 30}, **circuit),
        Contest("snake", {}, steps=20_000_000, players=snake_players, **game),
        Contest("bucket-brigade", {}, steps=5_000_000, players=villagers, **game),
    ]


def _held(contest: Contest, agents: Sequence[str], options: Any) -> Iterator[Row]:
    """Score the players, train the agents, and yield a row for each agent."""
    import jax

    from myriad import evaluate, make_env, make_key, make_train

    env = make_env(contest.env, **contest.options)
    players = [contest.score(name, returns(env, player)) for name, player in contest.players(env)]
    best = max(players, key=lambda score: math.copysign(1.0, contest.scale) * score.mean)
    for agent in agents:
        config = config_of(contest, agent, options.steps or contest.steps, options.preset)
        train = jax.jit(make_train(config))  # compiled once for all seeds
        trained = []
        for seed in range(options.seeds or _SEEDS):
            state = train(make_key(seed))["agent_state"]
            found = evaluate(config, state, _EPISODES, seed=_EVALUATION_SEED)
            trained.append(contest.score(agent, found))
        num_better = sum(contest.is_better(score, best) for score in trained)
        yield {
            "contest": f"{contest.name}, {contest.unit}",
            "players": ", ".join(f"{score.name} {score}" for score in players),
            "agent": agent,
            "trainings": ", ".join(map(str, trained)),
            "better": f"{num_better} of {len(trained)}",
        }


def config_of(contest: Contest, agent: str, steps: int, preset: str | None) -> Any:
    """Describe a training of `steps` steps that is only evaluated at its end."""
    from myriad import create_config

    options = {"preset": preset, "env_options": contest.options}
    config = create_config(contest.env, agent, auto_tune=False, **options)
    steps_per_env = -(-steps // config.num_envs)
    return config.changed(steps_per_env=steps_per_env, eval_frequency=steps_per_env)


def returns(env: Any, player: Any) -> Any:
    """Return a player's returns in the episodes that score it."""
    from myriad.programs import episode_returns

    return episode_returns(env, player, _EPISODES, _EVALUATION_SEED)


# --- the gene circuit's controllers


@dataclasses.dataclass(frozen=True)
class Preview:
    """A controller that steers to the target `preview` intervals ahead instead of the current one.

    Light acts on GFP only after H has followed it, so a controller that steers to the current
    target is too late. Source: Tomizuka and Whitney (1975), "Optimal discrete finite preview
    problems".
    """

    controller: Any
    preview: Any = 0

    def first_memory(self) -> Any:
        """Return the controller's first memory."""
        return self.controller.first_memory()

    def control(self, memory: Any, key: Any, obs: Any) -> tuple[Any, Any]:
        """Control, with the later target in place of the current one."""
        return self.controller.control(memory, key, obs.at[1].set(obs[1 + self.preview]))


def _controllers(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield the best bang-bang and PID of a sweep.

    A common factor of on-off gains has no effect.
    """
    from myriad import make_agent

    num_ahead = env.observation_space(env.default_params).shape[0] - 2
    previews = [preview for preview in _PREVIEWS if preview <= num_ahead]
    offsets = sorted({sign * offset for offset in _OFFSETS for sign in (-1, 1)})
    bands = {"offset": offsets, "hysteresis": _BANDS, "preview": previews}
    yield best_of("bang-bang", env, make_agent("bangbang", env), bands)
    gains = {"integral": _INTEGRALS, "derivative": _DERIVATIVES, "limit": _LIMITS}
    pid = dataclasses.replace(make_agent("pid", env), proportional=1.0)
    yield best_of("PID", env, pid, gains | {"preview": previews})


def best_of(
    name: str, env: Any, controller: Any, grid: Mapping[str, Sequence[float]]
) -> tuple[str, Any]:
    """Return the best controller of a grid. One axis is `preview`, and the others are fields."""
    import jax
    import jax.numpy as jnp

    from myriad.programs import episode_returns

    axes = jnp.meshgrid(*map(jnp.asarray, grid.values()), indexing="ij")
    settings = dict(zip(grid, (axis.ravel() for axis in axes), strict=True))

    def with_setting(setting: dict[str, Any]) -> Preview:
        fields = {key: value for key, value in setting.items() if key != "preview"}
        return Preview(dataclasses.replace(controller, **fields), setting["preview"])

    def mean_return(setting: dict[str, jax.Array]) -> jax.Array:
        return episode_returns(env, with_setting(setting), _CHOOSING_EPISODES, seed=7).mean()

    best = int(jax.jit(jax.vmap(mean_return))(settings).argmax())
    chosen = {key: values[best].item() for key, values in settings.items()}
    words = ", ".join(f"{key} {value:g}" for key, value in chosen.items())
    return f"{name} ({words})", with_setting(chosen)


# --- the games' players, which see what an agent sees


@dataclasses.dataclass(frozen=True)
class Player:
    """A player without a memory: `act(key, obs)` returns an action."""

    act: Callable[[Any, Any], Any]
    uses_observation: ClassVar[bool] = True


def snake_players(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield greedy players: one avoids the walls, and the other also its own body, if it can."""
    yield "greedy to the food", Player(functools.partial(_move_to_food, looks=False))
    yield "greedy, never into itself at once", Player(functools.partial(_move_to_food, looks=True))


def _move_to_food(key: Any, obs: Any, *, looks: bool) -> Any:
    import jax.numpy as jnp

    shape = jnp.array(obs.shape[:2])
    head, food = (
        jnp.stack(jnp.unravel_index(jnp.argmax(obs[..., channel]), obs.shape[:2]))
        for channel in (0, 2)
    )
    cells = head + jnp.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
    inside = ((cells >= 0) & (cells < shape)).all(-1)
    at = jnp.clip(cells, 0, shape - 1)
    # The tail's last cell becomes free in this move, so it counts as free.
    body = obs[at[:, 0], at[:, 1], 1] * shape.prod()
    cost = jnp.abs(cells - food).sum(-1) + 1_000 * ~inside
    # The game ignores a turn by 180 degrees, so the neck is no choice even for the player that does
    # not look.
    neck = body > jnp.max(obs[..., 1]) * shape.prod() - 1.5
    return jnp.argmin(cost + 500 * neck + (100 * (body > 1.5) if looks else 0))


def villagers(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield the other villagers' scripts, playing in the learner's place."""
    from myriad.envs.bucket_brigade import POLICIES

    for name, policy in POLICIES.items():
        yield name, Player(functools.partial(_act_by_script, policy=policy, env=env))


def _act_by_script(key: Any, obs: Any, *, policy: Callable[..., Any], env: Any) -> Any:
    import jax
    import jax.numpy as jnp

    from myriad.envs.bucket_brigade import BucketBrigadeState

    num_houses, num_agents = env.num_houses, env.num_agents
    seen = obs.astype(jnp.int32)[: num_houses + 2 * num_agents]
    houses, signals, locations = jnp.split(seen, [num_houses, num_houses + num_agents])
    idle = (jnp.zeros((), jnp.int32),) * num_agents
    village = BucketBrigadeState(tuple(houses), (), tuple(locations), idle, tuple(signals), idle[0])
    action = policy(list(jax.random.split(key, 3)), 0, village)
    return jnp.stack([jnp.asarray(part, jnp.int32) for part in action])
