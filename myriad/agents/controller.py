"""Controllers: fixed control laws with a memory, and the learner that runs one in the trainer."""

import dataclasses
import functools
from typing import Annotated, Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from myriad.agents.agent import Agent, Environments, Learner
from myriad.envs import Environment
from myriad.envs.vector import BatchState, select_reset
from myriad.envs.wrappers import Wrapper
from myriad.errors import InvalidArgumentError
from myriad.ranges import Like

_ACT, _STEP = range(2)


class Controller(Protocol):
    """A control law for ONE environment. Its memory starts afresh in every episode."""

    def first_memory(self) -> Any:
        """Return the memory before an episode's first step: a pytree of arrays."""
        ...

    def control(self, memory: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
        """Choose an action for `obs`, `[*O]`, and return it with the next memory."""
        ...


@dataclasses.dataclass(frozen=True)
class ControllerLearner(Learner[Any]):
    """A controller as a learner: the trainer steps and evaluates it, and it learns nothing.

    Its state is every environment's memory, leaves `[N, ...]`.
    """

    env: Environment
    controller: Any
    default_num_envs: ClassVar[int] = 128

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ()

    @property
    def agent(self) -> Any:
        """The controller, whose fields are the hyperparameters."""
        return self.controller

    @property
    def steps_per_update(self) -> int:
        return 1

    def first_memory(self, num_envs: int) -> Any:
        """Return the first memory of each environment."""
        memory = self.controller.first_memory()
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_envs, *leaf.shape)), memory)

    def control(
        self, state: Any, memory: Any, key: jax.Array, obs: jax.Array, *, greedy: bool
    ) -> tuple[jax.Array, Any]:
        """Choose actions `[N, *A]`, and return them with the next memories."""
        num_envs = jax.tree.leaves(obs)[0].shape[0]  # An observation may be a dict here.
        return jax.vmap(self.controller.control)(memory, jax.random.split(key, num_envs), obs)

    def init(self, key: jax.Array, num_envs: int) -> Any:
        return self.first_memory(num_envs)

    def update(
        self, key: jax.Array, state: Any, batch_state: BatchState, envs: Environments
    ) -> tuple[Any, BatchState, dict[str, Any]]:
        obs: Any = batch_state.obs
        act_key = jax.random.fold_in(key, _ACT)
        action, memory = self.control((), state, act_key, obs, greedy=True)
        batch_state, transition = envs.step(jax.random.fold_in(key, _STEP), batch_state, action)
        done = transition.terminated | transition.truncated
        return select_reset(done, self.first_memory(done.shape[0]), memory), batch_state, {}

    def act(self, state: Any, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose as in an episode's first step. An evaluation calls `control` with the memory."""
        return self.control((), self.first_memory(obs.shape[0]), key, obs, greedy=greedy)[0]


@dataclasses.dataclass(frozen=True)
class _Trained:
    """A learner with a fixed state, as an agent of ONE environment. It is greedy by default.

    It compiles at its first call, so that you can call it in each step of any environment.
    """

    learner: Any
    state: Any
    env: Environment
    greedy: bool = True

    @functools.cached_property
    def _control(self) -> Any:
        shape = self.env.observation_space(self.env.default_params).shape

        def control(state: Any, memory: Any, key: jax.Array, obs: jax.Array) -> Any:
            if not isinstance(obs, jax.Array) or obs.shape != shape:
                rule = f"must be an array of shape {shape}, as of load_agent's environment"
                raise InvalidArgumentError("obs", rule, obs)
            memories = jax.tree.map(lambda leaf: leaf[None], memory)
            return _one(self.learner.control(state, memories, key, obs[None], greedy=self.greedy))

        return jax.jit(control)


class TrainedPolicy(_Trained):
    """A learner whose policy has no memory."""

    uses_observation: ClassVar[bool] = True

    def act(self, key: jax.Array, obs: jax.Array | None) -> jax.Array:
        return self._control(self.state, (), key, obs)[0]


class TrainedController(_Trained):
    """A learner whose policy has a memory, as a controller."""

    def first_memory(self) -> Any:
        return _one(self.learner.first_memory(1))

    def control(self, memory: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
        return self._control(self.state, memory, key, obs)


def _one(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def trained(learner: Learner, state: Any, env: Environment) -> TrainedPolicy | TrainedController:
    """Return a learner with a fixed state for `env`: a controller if its policy has a memory."""
    kind = TrainedController if jax.tree.leaves(learner.first_memory(1)) else TrainedPolicy
    return kind(learner, state, env)


@dataclasses.dataclass(frozen=True)
class Memoryless:
    """A fixed policy as a controller without memory."""

    policy: Agent

    def first_memory(self) -> tuple[()]:
        return ()

    def control(
        self, memory: tuple[()], key: jax.Array, obs: jax.Array
    ) -> tuple[jax.Array, tuple[()]]:
        return self.policy.act(key, obs if self.policy.uses_observation else None), memory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Remembered:
    """The state of an environment, and the memory of its controller."""

    env_state: Any
    memory: Any


@dataclasses.dataclass(frozen=True)
class WithMemory(Wrapper):
    """An environment that keeps its controller's memory, so that auto-reset resets both.

    An action is a pair of the environment's action and the controller's next memory.
    """

    controller: Any

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Remembered]:
        obs, env_state = self.env.reset(key, params)
        return obs, Remembered(env_state, self.controller.first_memory())

    def step(
        self, key: jax.Array, state: Remembered, action: Any, params: Any
    ) -> tuple[Any, Remembered, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        chosen, memory = action
        result = self.env.step(key, state.env_state, chosen, params)
        return result[0], Remembered(result[1], memory), *result[2:]

    def inner_state(self, state: Remembered) -> Any:
        return state.env_state


_AGENT = "an agent, as make_agent or load_agent gives it"
# The type of an argument that is a fixed policy or a controller.
AnyAgent = Annotated[Agent, Like(_AGENT, "act")] | Annotated[Controller, Like(_AGENT, "control")]


def controller_of(agent: Any) -> Controller:
    """Return a fixed policy or a controller as a controller of ONE environment."""
    return agent if hasattr(agent, "control") else Memoryless(agent)
