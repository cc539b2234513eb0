"""A stochastic public-goods game: houses on a ring burn, and agents fight fires or rest.

Houses and agents are tuples of scalars, and loops over them are unrolled, so that a step stays one
loop over environments. `H` is the number of houses and `A` the number of agents. Agent 0 learns,
and the others follow a script.
"""

import dataclasses
import functools
import math
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from myriad.canvas import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    VERMILLION,
    WHITE,
    Canvas,
    Colour,
    Point,
    one_instance,
)
from myriad.envs.environment import Finite, NotNegative, Probability
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.ranges import Integer, require_ranges
from myriad.spaces import Box, Discrete, MultiDiscrete

__all__ = ["BucketBrigade"]

SAFE, BURNING, RUINED = range(3)
REST, WORK = range(2)
MODES = ("bernoulli", "continuous")

Scalars = tuple[jax.Array, ...]
# One agent's choice: a house, REST or WORK, and a signal.
Action = Sequence[jax.Array] | jax.Array
# An opponent's three keys, each for the draw of one scalar.
Keys = list[jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BucketBrigadeState:
    """The village after a night. All scalars are int32, except `progress`.

    Attributes:
        houses: SAFE, BURNING or RUINED, `H` scalars.
        progress: how far each fire is put out, 0 to 1, `H` float32 scalars; empty in bernoulli
            mode.
        locations: the house where each agent is, `A` scalars.
        modes: whether each agent rested or worked last, `A` scalars.
        signals: each agent's last signal, 0 or 1, `A` scalars.
        night: nights since the reset.
    """

    houses: Scalars
    progress: Scalars
    locations: Scalars
    modes: Scalars
    signals: Scalars
    night: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BucketBrigadeParams:
    """A scenario's parameters. `beta`, `kappa` and `rho` are probabilities, most others rewards.

    Attributes:
        beta: probability that a burning house ignites a safe neighbour.
        kappa: probability that one worker puts a fire out.
        rho: probability that a safe house catches fire by itself, and that a house burns at the
            start.
        team_reward: reward of every agent if all houses are safe.
        team_penalty: penalty of every agent if all houses are ruined.
        own_reward: reward of the owner for a house that is safe again.
        own_penalty: penalty of the owner, every night, for a house in ruins.
        cost_to_work: cost for an agent that works.
        min_nights: nights before which an episode never ends.
        other_reward: reward of all agents but the owner for a house that is safe again.
        other_penalty: penalty of all agents but the owner, every night, for a house in ruins.
        reward_rest: reward of an agent that rests.
        suppression_per_worker: progress that a worker adds at a house in a night. For continuous
            mode only.
    """

    beta: Probability
    kappa: Probability
    rho: Probability
    team_reward: Finite
    team_penalty: Finite
    own_reward: Finite
    own_penalty: Finite
    cost_to_work: Finite
    min_nights: Annotated[int | jax.Array, Integer(0, arrays=True)]
    other_reward: Finite = 0.0
    other_penalty: Finite = 0.0
    reward_rest: Finite = 0.5
    suppression_per_worker: NotNegative = 0.5


# The parameters of a scenario that an observation contains, in this order.
OBSERVED_FIGURES = tuple(field.name for field in dataclasses.fields(BucketBrigadeParams))[:9]


@functools.cache
def scenarios() -> dict[str, BucketBrigadeParams]:
    """Read the scenarios by name from the presets."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {name: BucketBrigadeParams(**figures) for name, figures in tomllib.loads(text).items()}


class Uniforms(NamedTuple):
    """A night's draws from [0, 1), one of each kind per house: float32 `[H]` or `H` scalars."""

    suppression: Sequence[jax.Array] | jax.Array
    ignition: Sequence[jax.Array] | jax.Array
    spark: Sequence[jax.Array] | jax.Array


def night(
    uniforms: Uniforms,
    state: BucketBrigadeState,
    actions: Sequence[Action] | jax.Array,
    params: BucketBrigadeParams,
    mode: str,
) -> tuple[BucketBrigadeState, Scalars]:
    """Play one night of `actions`, `[A, 3]`, and return the state and all `A` rewards.

    If a fire is put out and the house catches fire again in the same night, it is burning at the
    end, and there is no reward for it.
    """
    workers = [
        [(action[0] == house) & (action[1] == WORK) for action in actions]
        for house in range(len(state.houses))
    ]
    houses = []
    progress = []
    if mode == "bernoulli":
        for house, u, working in zip(state.houses, uniforms.suppression, workers, strict=True):
            # Workers fail independently. If all of them fail, the house is ruined tonight.
            failing = _power(1.0 - params.kappa, working)
            houses.append(
                jnp.where(house == BURNING, jnp.where(u < 1.0 - failing, SAFE, RUINED), house)
            )
    else:
        # Each worker adds to the progress. At 1 the fire is out, and progress is 0 again.
        for house, before, working in zip(state.houses, state.progress, workers, strict=True):
            num_workers = sum(at_work.astype(jnp.float32) for at_work in working)
            done = jnp.where(
                house == BURNING, before + params.suppression_per_worker * num_workers, 0.0
            )
            out = done >= 1.0
            houses.append(jnp.where(out, SAFE, house))
            progress.append(jnp.where(out, 0.0, done))
        # Each burning neighbour may ignite a safe house. Use the neighbours' states from before any
        # house ignites, so that fire moves one house a night.
        ignited = []
        for i, (house, u) in enumerate(zip(houses, uniforms.ignition, strict=True)):
            neighbours = [houses[i - 1] == BURNING, houses[(i + 1) % len(houses)] == BURNING]
            caught = (house == SAFE) & (u < 1.0 - _power(1.0 - params.beta, neighbours))
            ignited.append(jnp.where(caught, BURNING, house))
        houses = ignited
    houses = [
        jnp.where((house == SAFE) & (u < params.rho), BURNING, house)
        for house, u in zip(houses, uniforms.spark, strict=True)
    ]
    after = BucketBrigadeState(
        houses=tuple(houses),
        progress=tuple(progress),
        locations=tuple(action[0] for action in actions),
        modes=tuple(action[1] for action in actions),
        signals=tuple(action[2] for action in actions),
        night=state.night + 1,
    )
    saved = [
        ((was != SAFE) & (now == SAFE)).astype(jnp.float32)
        for was, now in zip(state.houses, houses, strict=True)
    ]
    ruined = [(house == RUINED).astype(jnp.float32) for house in houses]
    num_safe = sum((house == SAFE).astype(jnp.float32) for house in houses)
    team = (params.team_reward * num_safe - params.team_penalty * sum(ruined)) * np.float32(
        1 / len(houses)
    )
    rewards = []
    for agent, work in enumerate(after.modes):
        # House h belongs to agent h % A, so an agent's own houses are every A-th.
        saved_own = sum(saved[agent :: len(actions)])
        ruined_own = sum(ruined[agent :: len(actions)])
        effort = jnp.where(work == WORK, -params.cost_to_work, params.reward_rest)
        gained = params.own_reward * saved_own + params.other_reward * (sum(saved) - saved_own)
        lost = params.own_penalty * ruined_own + params.other_penalty * (sum(ruined) - ruined_own)
        rewards.append(jnp.asarray(team + effort + gained - lost, jnp.float32))
    return after, tuple(rewards)


def _power(base: float | jax.Array, factors: Sequence[jax.Array]) -> jax.Array | float:
    """Return `base` to the power of the number of true factors."""
    # A product of selects, since `base ** count` would need a logarithm and an exponential.
    power = 1.0
    for factor in factors:
        power = power * jnp.where(factor, base, 1.0)
    return power


# Scripted opponents. Each sees the state before the night, but not what the others will do.


def act_randomly(keys: Keys, agent: int, state: BucketBrigadeState) -> Action:
    """Draw house, mode and signal uniformly."""
    return tuple(
        Discrete(n).sample(key) for n, key in zip((len(state.houses), 2, 2), keys, strict=True)
    )


def fight_the_nearest_fire(keys: Keys, agent: int, state: BucketBrigadeState) -> Action:
    """Work at the nearest burning house, the agent's own first, and signal it. Otherwise rest.

    Distances are counted along the ring from the agent. Of two equally near houses, the one with
    the lower number is taken.
    """
    num_houses = len(state.houses)
    num_agents = len(state.modes)
    best = jnp.full((), 2 * num_houses * num_houses, jnp.int32)
    for number, house in enumerate(state.houses):
        distance = jnp.abs(state.locations[agent] - number)
        distance = jnp.minimum(distance, num_houses - distance)
        # The agent's own houses rank before all others, since no distance reaches num_houses.
        rank = distance + (0 if number % num_agents == agent else num_houses)
        # Rank and house are packed into one integer, so that one minimum finds both.
        best = jnp.where(house == BURNING, jnp.minimum(best, rank * num_houses + number), best)
    burning = best < 2 * num_houses * num_houses
    works = burning.astype(jnp.int32)
    return jnp.where(burning, best % num_houses, agent % num_houses), works, works


def rest(keys: Keys, agent: int, state: BucketBrigadeState) -> Action:
    """Rest at home every night."""
    return _constant(agent % len(state.houses)), _constant(REST), _constant(0)


def fight_the_worst_fire(keys: Keys, agent: int, state: BucketBrigadeState) -> Action:
    """Work every night, at the fire furthest from being out, and signal it. Else work at home.

    Among equal fires, the house with the lowest number is taken.
    """
    place = _constant(agent % len(state.houses))
    least = jnp.full((), jnp.inf, jnp.float32)
    # Without progress, in bernoulli mode, all fires are equal.
    progress = state.progress or (jnp.zeros((), jnp.float32),) * len(state.houses)
    for number, (house, done) in enumerate(zip(state.houses, progress, strict=True)):
        worse = (house == BURNING) & (done < least)
        place = jnp.where(worse, number, place)
        least = jnp.where(worse, done, least)
    return place, _constant(WORK), _constant(1)


POLICIES: dict[str, Callable[[Keys, int, BucketBrigadeState], Action]] = {
    "random": act_randomly,
    "firefighter": fight_the_nearest_fire,
    "free-rider": rest,
    "hero": fight_the_worst_fire,
}


@dataclasses.dataclass(frozen=True)
class BucketBrigade:
    """Save the village with scripted opponents. Act by `[house, work (0, 1), signal (0, 1)]`.

    House `h` belongs to agent `h % A`, and the home of agent `i` is house `i % H`. The learner is
    agent 0.

    Observation, float32 `[H + 4 A + 9 + A]`: the houses' states (0 safe, 1 burning, 2 ruined), all
    agents' signals, all agents' locations, each agent's last house and mode in turn, the parameters
    in `OBSERVED_FIGURES`, and the observer one-hot.

    Args:
        num_houses: number of houses on the ring, at least 3.
        num_opponents: number of scripted agents.
        mode: `bernoulli`, in which a fire is put out in its first night or never, or `continuous`,
            in which a fire needs work and spreads.
        opponents: a name in `POLICIES` for all opponents, or one for each.
        scenario: a name in `scenarios()`.
        default_params: all parameters of a scenario, in place of the one that `scenario` names.
    """

    # Bounded, since a step is unrolled over houses and agents.
    num_houses: Annotated[int, Integer(3, 100)] = 10
    num_opponents: Annotated[int, Integer(0, 100)] = 2
    mode: str = "bernoulli"
    opponents: str | tuple[str, ...] = "random"
    scenario: str = "default"
    default_params: BucketBrigadeParams = None  # pyright: ignore[reportAssignmentType]  filled in below

    @property
    def unused(self) -> dict[str, str]:
        """What the other mode needs, and the opponents' policies if there are none."""
        names = {}
        if self.mode == "bernoulli":
            names["suppression_per_worker"] = "with mode 'bernoulli'"
        if self.num_opponents == 0 and self.opponents:
            names["opponents"] = "with num_opponents = 0"
        return names

    def __post_init__(self) -> None:
        require_ranges(self)
        if self.mode not in MODES:
            raise UnknownNameError("mode", self.mode, MODES)
        if self.scenario not in scenarios():
            raise UnknownNameError("scenario", self.scenario, scenarios())
        if (
            not isinstance(self.opponents, str | tuple | list)
            or len(self.policies) != self.num_opponents
        ):
            rule = f"must be one name or {self.num_opponents} names (num_opponents)"
            raise InvalidArgumentError("opponents", rule, self.opponents)
        for policy in self.policies:
            if policy not in POLICIES:
                raise UnknownNameError("opponent", policy, POLICIES)
        if self.default_params is None:
            object.__setattr__(self, "default_params", scenarios()[self.scenario])

    @property
    def num_agents(self) -> int:
        return 1 + self.num_opponents

    @property
    def policies(self) -> tuple[str, ...]:
        """The policy of each opponent, in the order of the agents."""
        return (
            (self.opponents,) * self.num_opponents
            if isinstance(self.opponents, str)
            else tuple(self.opponents)
        )

    def reset(
        self, key: jax.Array, params: BucketBrigadeParams
    ) -> tuple[jax.Array, BucketBrigadeState]:
        """Set each house on fire with probability `rho`; every agent rests at house 0."""
        draws = jax.random.uniform(key, (self.num_houses,))
        state = BucketBrigadeState(
            houses=tuple((u < params.rho).astype(jnp.int32) for u in draws),
            progress=(jnp.zeros((), jnp.float32),)
            * (self.num_houses if self.mode == "continuous" else 0),
            locations=(_constant(0),) * self.num_agents,
            modes=(_constant(REST),) * self.num_agents,
            signals=(_constant(0),) * self.num_agents,
            night=_constant(0),
        )
        return self.observe(state, params), state

    def step(
        self,
        key: jax.Array,
        state: BucketBrigadeState,
        action: jax.Array,
        params: BucketBrigadeParams,
    ) -> tuple[jax.Array, BucketBrigadeState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Play one night. `info["rewards"]` holds all agents' rewards, float32 `[A]`."""
        house, mode, signal = self.action_space(params).validate(action)
        draws, opponent_keys = self.draw_night(key)
        opponents = [
            POLICIES[policy](opponent_keys[3 * i : 3 * i + 3], i + 1, state)
            for i, policy in enumerate(self.policies)
        ]
        actions = [(house, mode, signal), *opponents]
        state, rewards = night(draws, state, actions, params, self.mode)
        burns = functools.reduce(jnp.logical_or, [house == BURNING for house in state.houses])
        terminated = (state.night >= params.min_nights) & ~burns
        obs, info = self.observe(state, params), {"rewards": jnp.stack(rewards)}
        return obs, state, rewards[0], terminated, jnp.zeros((), jnp.bool_), info

    def draw_night(self, key: jax.Array) -> tuple[Uniforms, Keys]:
        """Draw the numbers of `step` for the houses, and three keys for each opponent."""
        houses_key, opponents_key = jax.random.split(key)
        drawn = tuple(jax.random.uniform(houses_key, (3 * self.num_houses,)))
        opponent_keys = list(jax.random.split(opponents_key, 3 * self.num_opponents))
        return Uniforms(*(drawn[kind::3] for kind in range(3))), opponent_keys

    def observe(
        self, state: BucketBrigadeState, params: BucketBrigadeParams, agent: int = 0
    ) -> jax.Array:
        """Return the observation of `agent`, laid out as the class describes."""
        last = [
            scalar for pair in zip(state.locations, state.modes, strict=True) for scalar in pair
        ]
        figures = [getattr(params, name) for name in OBSERVED_FIGURES]
        identity = [float(i == agent) for i in range(self.num_agents)]
        seen = [*state.houses, *state.signals, *state.locations, *last, *figures, *identity]
        return jnp.stack([jnp.asarray(scalar, jnp.float32) for scalar in seen])

    def observation_space(self, params: BucketBrigadeParams) -> Box:
        figures = [getattr(params, name) for name in OBSERVED_FIGURES]
        place = self.num_houses - 1
        num_agents = self.num_agents
        high = (
            [2] * self.num_houses
            + [1] * num_agents
            + [place] * num_agents
            + [place, 1] * num_agents
        )
        low = np.concatenate([[0] * len(high), figures, [0] * num_agents], dtype=np.float32)
        high = np.concatenate([high, figures, [1] * num_agents], dtype=np.float32)
        return Box(low, high, high.shape)

    def action_space(self, params: BucketBrigadeParams) -> MultiDiscrete:
        return MultiDiscrete((self.num_houses, 2, 2))

    def render(self, state: BucketBrigadeState) -> np.ndarray:
        """Draw the state: uint8 `[400, 600, 3]`. House 0 is at the top, others follow clockwise."""
        state = one_instance(state)
        houses = [int(house) for house in state.houses]
        # Neighbours keep a gap, however many there are.
        side = min(38.0, 1.4 * math.pi * _RING / len(houses))
        canvas = Canvas()
        canvas.heading("Bucket brigade", f"night {int(state.night)}")
        for number, house in enumerate(houses):
            x, y = _house_centre(number, len(houses))
            _draw_house(canvas, (x, y), side, house)
            if side >= 20:
                canvas.text(x, y + 0.23 * side, str(number), round(0.4 * side), WHITE, "middle")
            if state.progress:  # how far the house has burnt
                burnt = side * min(float(state.progress[number]), 1.0)
                left, top = x - side / 2, y + side / 2 + 3
                canvas.rectangle(left, top, left + burnt, top + 4, BLUE)
        _draw_agents(canvas, state, len(houses), side)
        for i, name in enumerate(("safe", "burning", "ruined")):
            _draw_house(canvas, (424, 84 + 44 * i), 19, i)
            canvas.text(448, 87 + 44 * i, f"{houses.count(i)} {name}", 16)
        workers = sum(int(mode) == WORK for mode in state.modes)
        canvas.text(412, 231, f"{workers} at work, filled", 16)
        canvas.text(412, 265, f"{len(state.modes) - workers} at rest, hollow", 16)
        canvas.text(412, 299, "a flag is a signal", 16)
        canvas.text(412, 338, "agent 0 learns", 14, BLUE)
        canvas.text(412, 360, "the others follow a script", 14, MUTED)
        return canvas.image()


def _constant(value: int) -> jax.Array:
    return jnp.full((), value, jnp.int32)


# --- the picture

_WALLS: dict[int, Colour] = {SAFE: GREEN, BURNING: VERMILLION, RUINED: MUTED}
_X, _Y, _RING = 200, 220, 138


def _house_centre(number: int, num_houses: int, inwards: float = 0) -> Point:
    """Return the centre of a house, or a point pixels `inwards` from it."""
    angle = 2 * math.pi * number / num_houses
    radius = _RING - inwards
    return _X + radius * math.sin(angle), _Y - radius * math.cos(angle)


def _draw_house(canvas: Canvas, centre: Point, side: float, house: int) -> None:
    """Draw a house. One on fire has a flame for a roof, and a ruin has no roof."""
    x, y = centre
    half = side / 2
    top = y - 0.2 * half
    canvas.rectangle(x - half, top, x + half, y + half, _WALLS[house], corner=2)
    if house != RUINED:
        height = half if house == SAFE else 1.5 * half
        roof = [(x - half, top), (x, top - height), (x + half, top)]
        canvas.polygon(roof, GREEN if house == SAFE else ORANGE)


def _draw_agents(canvas: Canvas, state: BucketBrigadeState, num_houses: int, side: float) -> None:
    """Draw agents inside the ring, those at one house behind each other, with flags as signals."""
    present: dict[int, list[int]] = {}
    for agent, location in enumerate(state.locations):
        present.setdefault(int(location), []).append(agent)
    # Draw the learner's house last, so that no other agent hides the learner.
    for house, agents in reversed(present.items()):
        row = min(27.0, (_RING - 40) / len(agents))
        for place, agent in reversed(list(enumerate(agents))):
            x, y = _house_centre(house, num_houses, 0.62 * side + 22 + row * place)
            if state.signals[agent]:
                canvas.line([(x + 8, y - 4), (x + 8, y - 19)], 2, INK)
                canvas.polygon([(x + 8, y - 20), (x + 18, y - 16), (x + 8, y - 12)], ORANGE)
            works = int(state.modes[agent]) == WORK
            canvas.disc(x, y, 11.5, BLUE if agent == 0 else PURPLE)
            if not works:
                canvas.disc(x, y, 8.5, WHITE)
            canvas.text(x, y, str(agent), 13, WHITE if works else INK, "middle")
