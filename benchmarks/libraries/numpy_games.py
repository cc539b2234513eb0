"""Games as a user would write them, in plain Python with NumPy's random generator.

`bucket-brigade` is compared with `Village`: the default scenario, `bernoulli` mode, random
opponents. It uses lists on purpose. With NumPy arrays over its ten houses a night takes eight times
as long.
"""

import importlib.resources
import tomllib
from collections.abc import Sequence

import numpy as np

from benchmarks.harness.workload import Case
from benchmarks.libraries.server import SEED, Stepper, Totals, imported

SAFE, BURNING, RUINED = range(3)
NUM_HOUSES = 10
NUM_AGENTS = 3
REWARD_REST = 0.5


class NumpyStepper(Stepper):
    """Games in plain Python, one after another: `env_id` is a class that takes a generator."""

    def __init__(self, case: Case):
        workload = case.workload
        if workload.agent != "random":
            raise NotImplementedError(
                f"beside NumPy only the random agent is measured, not {workload.agent!r}"
            )
        rng = np.random.default_rng(SEED)
        game = imported(case.env_id)
        self.games = [game(rng) for _ in range(workload.num_envs)]
        self.returns = [0.0] * workload.num_envs
        self.ended = Totals(0, 0.0)

    def run(self, num_steps: int) -> None:
        num_episodes, return_sum, _ = self.ended
        for number, game in enumerate(self.games):
            episode_return = self.returns[number]
            for _ in range(num_steps):
                reward, done = game.step(game.sample_action())
                episode_return += reward
                if done:
                    game.reset()
                    num_episodes += 1
                    return_sum += episode_return
                    episode_return = 0.0
            self.returns[number] = episode_return
        self.ended = Totals(num_episodes, return_sum)

    def totals(self) -> Totals:
        return self.ended


class Village:
    """One game: `reset`, then `step(action)`.

    An action is a house, rest (0) or work (1), and a signal of 0 or 1.
    """

    def __init__(self, rng: np.random.Generator):
        text = (
            importlib.resources.files("myriad.envs")
            .joinpath("bucket_brigade.toml")
            .read_text(encoding="utf-8")
        )
        self.rng = rng
        self.figures = tomllib.loads(text)["default"]
        self.reset()

    def reset(self) -> None:
        """Set each house on fire with probability `rho`."""
        self.houses = [
            BURNING if u < self.figures["rho"] else SAFE
            for u in self.rng.random(NUM_HOUSES).tolist()
        ]
        self.night = 0

    def sample_action(self) -> list[int]:
        """Draw an action of the random policy."""
        return _action(self.rng.random(3).tolist())

    def step(self, action: Sequence[int]) -> tuple[float, bool]:
        """Play one night. Return the learner's reward and whether the game is over."""
        before = list(self.houses)
        figures = self.figures
        draws = self.rng.random(2 * NUM_HOUSES + 3 * (NUM_AGENTS - 1)).tolist()
        choices = draws[2 * NUM_HOUSES :]
        workers = [0] * NUM_HOUSES
        for place, work, _ in (
            action,
            *(_action(choices[i : i + 3]) for i in range(0, len(choices), 3)),
        ):
            workers[place] += work
        for h, house in enumerate(before):
            if house == BURNING:
                out = draws[h] < 1 - (1 - figures["kappa"]) ** workers[h]
                self.houses[h] = SAFE if out else RUINED
            # Nothing burns at this point, so nothing spreads.
            if self.houses[h] == SAFE and draws[NUM_HOUSES + h] < figures["rho"]:
                self.houses[h] = BURNING
        self.night += 1
        over = self.night >= figures["min_nights"] and BURNING not in self.houses
        return self._reward(before, works=action[1] == 1), over

    def _reward(self, before: Sequence[int], *, works: bool) -> float:
        figures = self.figures
        houses = self.houses
        team = figures["team_reward"] * houses.count(SAFE) - figures["team_penalty"] * houses.count(
            RUINED
        )
        reward = team / NUM_HOUSES + (-figures["cost_to_work"] if works else REWARD_REST)
        for h in range(0, NUM_HOUSES, NUM_AGENTS):  # the learner's own house
            if houses[h] == RUINED:
                reward -= figures["own_penalty"]
            elif houses[h] == SAFE and before[h] == BURNING:
                reward += figures["own_reward"]
        return reward


def _action(draws: Sequence[float]) -> list[int]:
    return [int(draws[0] * NUM_HOUSES), int(draws[1] * 2), int(draws[2] * 2)]
