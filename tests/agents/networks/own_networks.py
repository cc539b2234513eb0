"""Networks as users write them: some that learners train, and some that they refuse."""

import flax.linen as nn
import jax.numpy as jnp


class Flat(nn.Module):
    """A layer over all cells of the grids that it is given."""

    num_outputs: int

    @nn.compact
    def __call__(self, obs):
        assert obs.shape[1:] == (6, 5, 3)
        return nn.Dense(self.num_outputs)(obs.reshape(obs.shape[0], -1))


def of_size(num_outputs):
    """Return a module, as its class would."""
    return Flat(num_outputs)


def of_role(num_outputs, role):
    """Return a network as wide as the role's name is long."""
    return nn.Sequential([nn.Dense(len(role)), nn.Dense(num_outputs)])


class LSTM(nn.Module):
    """Two arrays of memory."""

    num_outputs: int

    @nn.compact
    def __call__(self, carry, obs):
        carry, hidden = nn.OptimizedLSTMCell(16)(carry, obs)
        return carry, nn.Dense(self.num_outputs)(hidden)

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        return nn.OptimizedLSTMCell(16, parent=None).initialize_carry(rng, input_shape)


class Growing(LSTM):
    """Returns a memory of another shape."""

    @nn.compact
    def __call__(self, carry, obs):
        return jnp.concatenate(carry, axis=1), jnp.zeros((obs.shape[0], self.num_outputs))


class Wide(nn.Module):
    """Has an output too many."""

    num_outputs: int

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(self.num_outputs + 1)(obs.reshape(obs.shape[0], -1))


class Moving(nn.Module):
    """Keeps more than parameters."""

    num_outputs: int

    @nn.compact
    def __call__(self, obs):
        obs = nn.BatchNorm(use_running_average=True)(obs.reshape(obs.shape[0], -1))
        return nn.Dense(self.num_outputs)(obs)


class NoSize(nn.Module):
    """Can't be told how many outputs there are."""

    @nn.compact
    def __call__(self, obs):
        return obs


def nothing(num_outputs):
    """Return no module."""
