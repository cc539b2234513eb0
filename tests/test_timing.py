"""Timing's properties, on a clock that only moves when told to, so that no speed matters here."""

import functools
import gc
import math
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad import timing
from myriad.errors import InvalidArgumentError
from tests.compilations import count_compilations

ENOUGH = {"num_samples": 6, "min_sample_s": 0.001}


class FakeClock:
    """Seconds that pass only in `work`."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, seconds=1.0):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(timing, "perf_counter", clock)
    return clock


def donating(fn):
    return jax.jit(fn, donate_argnums=0)


@given(st.integers(2, 400), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_is_the_narrowest_that_keeps_its_confidence(num_samples, confidence):
    def coverage(rank):
        return (
            sum(math.comb(num_samples, below) for below in range(rank, num_samples - rank + 1))
            / 2**num_samples
        )

    rank = timing._rank(num_samples, confidence)
    assert rank == 0 or coverage(rank) >= confidence
    assert coverage(rank + 1) < confidence


@settings(max_examples=40, deadline=None)
@given(call_s=st.floats(1e-5, 1.0), min_sample_s=st.floats(1e-4, 1e-2))
def test_a_sample_has_the_calls_that_make_it_long_enough_and_hardly_more(call_s, min_sample_s):
    clock = FakeClock()
    with mock.patch.object(timing, "perf_counter", clock):
        found = timing.measure(clock.work, call_s, num_samples=6, min_sample_s=min_sample_s)
    sample_s = found.calls_per_sample * call_s
    assert sample_s >= min_sample_s * 0.999
    assert sample_s <= 1.2 * min_sample_s + call_s * 1.001
    assert found.median_s == pytest.approx(call_s)


def test_samples_are_seconds_per_call_in_the_order_they_were_taken(clock):
    # The first call and the calibration take one turn each, at a second a call.
    seconds = iter([1.0, 1.0, 8.0, 3.0, 5.0, 4.0, 7.0, 6.0])
    found = timing.measure(lambda: clock.work(next(seconds)), num_samples=6, min_sample_s=1.0)
    assert found.samples_s == (8.0, 3.0, 5.0, 4.0, 7.0, 6.0)
    assert (found.low_s, found.median_s, found.high_s) == (3.0, 5.5, 8.0)
    assert found.calls_per_sample == 1


def test_every_array_of_a_result_is_ready_before_the_clock_stops(clock):
    def answer(x):
        clock.work()
        return x

    later = jax.jit(lambda x: {"slow": jax.pure_callback(answer, x, x), "rest": (x + 1, 2)})
    assert timing.measure(later, 1.0, num_samples=6, min_sample_s=1.0).samples_s == (1.0,) * 6


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_rests_during_samples_and_is_left_as_it_was(enabled):
    states, was_enabled = [], gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        timing.measure(lambda: states.append(gc.isenabled()), **ENOUGH)
        assert not any(states[1:])
        calls = iter([None])
        with pytest.raises(StopIteration):
            timing.measure(lambda: next(calls), **ENOUGH)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


@given(st.integers(1, 5), st.integers(0, 6), st.integers(0, 6))
def test_every_round_takes_one_sample_of_every_side(num_sides, least, more):
    taken = []
    samplers = [lambda side=side: taken.append(side) or float(side) for side in range(num_sides)]
    samples = timing.interleave(samplers, least_rounds=least, most_rounds=least + more)
    rounds = [taken[i : i + num_sides] for i in range(0, len(taken), num_sides)]
    assert len(rounds) == least + more
    assert all(sorted(each) == list(range(num_sides)) for each in rounds)
    assert samples == [[float(side)] * (least + more) for side in range(num_sides)]

    # A spent budget ends the rounds once the least are taken.
    spent = timing.interleave(samplers, least_rounds=least, most_rounds=least + 9, budget_s=0.0)
    assert [len(each) for each in spent] == [least] * num_sides


def test_compilation_is_told_apart_from_running(clock):
    def fn(x):
        clock.work(7.0)  # runs when JAX traces
        return jax.pure_callback(lambda x: (clock.work(), x)[1], x, x)

    jitted = jax.jit(fn)
    first = timing.measure(jitted, 1.0, num_samples=6, min_sample_s=1.0)
    again = timing.measure(jitted, 1.0, num_samples=6, min_sample_s=1.0)
    assert (first.compile_s, first.median_s) == (7.0, 1.0)
    assert (again.compile_s, again.median_s) == (0.0, 1.0)


def test_nothing_compiles_within_a_sample(monkeypatch):
    mesh = jax.make_mesh((2,), ("env",))
    rows = jax.device_put(jnp.zeros(8), jax.NamedSharding(mesh, jax.P("env")))
    state = {"rows": rows, "weak": jnp.asarray(1.0)}
    fn = donating(lambda state: state | {"rows": state["rows"] + state["weak"]})
    run_s, in_samples = timing.Subject._run_s, []

    def counted_run_s(subject):
        with count_compilations() as compilations:
            seconds = run_s(subject)
        in_samples.extend(compilations)
        return seconds

    monkeypatch.setattr(timing.Subject, "_run_s", counted_run_s)
    timing.block_until_ready(timing._copied(state))  # copying compiles too
    with count_compilations() as compilations:
        timing.measure(fn, state, **ENOUGH)
    assert compilations == ["jit(<lambda>)"]
    assert in_samples == []


@pytest.mark.parametrize("seen_through", [True, False])
def test_a_donated_argument_is_the_same_in_every_call_and_survives(seen_through):
    seen, state, batch = [], {"x": jnp.ones(3), "n": 0}, jnp.ones((2, 3))
    jitted = jax.jit(
        lambda state, batch: ({"x": state["x"] + 1, "n": 0}, batch * 2), donate_argnums=(0, 1)
    )

    def hidden(state, batch):
        seen.append(int(state["x"][0]))
        return jitted(state, batch)

    fn = jitted if seen_through else hidden
    timing.measure(fn, state, batch, **ENOUGH)
    assert seen == [1] * len(seen)
    _, doubled = timing.warmup(fn, state, batch)
    timing.compare(fn, fn, state, batch, num_pairs=6, min_sample_s=0.001)
    assert doubled.tolist() == [[2.0] * 3] * 2
    assert state["x"].tolist() == [1.0] * 3
    assert not batch.is_deleted()


def test_copies_are_made_while_the_clock_stands_and_a_sample_does_not_grow_without_end(
    clock, monkeypatch
):
    copied = timing._copied
    monkeypatch.setattr(timing, "_copied", lambda tree: (clock.work(100.0), copied(tree))[1])
    add = donating(lambda x: x + 1)

    def fn(x):
        clock.work(0.5)
        return add(x)

    found = timing.measure(fn, jnp.ones(3), num_samples=6, min_sample_s=20.0)
    assert found.samples_s == (0.5,) * 6
    assert found.calls_per_sample < 40


def test_pairs_hold_twice_the_work_to_be_twice_as_long_through_drift_in_an_order_of_the_seed(clock):
    def compared(seed):
        taken = []

        def drifting(name, seconds):
            taken.append(name)
            clock.work(seconds * (1 + clock.now / 1000))  # the machine slows down

        sides = [functools.partial(drifting, *each) for each in (("a", 1.0), ("b", 2.0))]
        twice = timing.compare(*sides, num_pairs=31, min_sample_s=1.0, seed=seed)
        return twice, ["".join(pair) for pair in zip(taken[4::2], taken[5::2], strict=True)]

    (twice, order), (_, same), (_, other) = map(compared, (0, 0, 1))
    assert twice.a.samples_s[-1] > 1.05 * twice.a.samples_s[0]
    assert twice.b_over_a_low <= 2.0 <= twice.b_over_a_high
    assert twice.b_over_a == pytest.approx(2.0, rel=0.01)
    assert twice.a.median_s < twice.b.median_s
    assert set(order) == {"ab", "ba"}
    assert order == same != other


def deleted():
    x = jnp.ones(3)
    x.delete()
    return x


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: timing.measure(len, (), num_samples=5), "num_samples must be at least 6 .* got 5"),
        (lambda: timing.measure(len, (), confidence=1.0), "confidence must .* but got 1.0"),
        (lambda: timing.measure(3), "fn is refused: .* but got 3"),
        (lambda: timing.median_interval([math.nan] * 9), "samples must be a list of"),
        (lambda: timing.interleave([], least_rounds=0, most_rounds=1.5), "most_rounds must be"),
        (lambda: timing.measure(len, {"x": deleted()}), "none deleted or donated"),
    ],
)
def test_a_mistake_is_named(call, named):
    with pytest.raises(InvalidArgumentError, match=named):
        call()
