"""The autotuner's answer is for the program that runs, has evidence, is kept, and fits."""

import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.autotune import Autotune
from myriad import create_config
from myriad.autotune import (
    ProfileCache,
    autotune,
    keys,
    suggest,
    suggest_config,
    suggest_scan_chunk_size,
    tuner,
)
from myriad.autotune.search import CANDIDATES, Rounds, _against, _Model, choose, measure
from myriad.autotune.stretch import Stretch
from myriad.cli import main
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.hardware import available_bytes, fingerprint
from myriad.host import resident_bytes
from myriad.training.config import TrainingConfig, make_config
from myriad.training.programs import CompiledTraining
from myriad.xla import count_compilations

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
ARGUMENTS = (64, "cartpole-control", "random")  # what the module's one tuning is of
# A child, since a process's real peak is that of its whole life.
PREDICT_AND_TRAIN = """
import json, sys
import jax
from benchmarks.harness.process.memory import peak_resident_bytes
from myriad import configure, create_config
configure(cpu_devices=2)
from myriad.host import resident_bytes
from myriad.training.memory import program_bytes
from myriad.xla import most_bytes
from myriad.training.programs import CompiledTraining

agent, num_envs, buffer_size = json.loads(sys.argv[1])
config = create_config("cartpole-control", agent, num_envs, 10_000, buffer_size=buffer_size)
training = CompiledTraining(config.resolve())
training.compile()
predicted = resident_bytes() + most_bytes(program_bytes(training))
# The first update that learns touches every buffer: each later one reuses them.
learning = training.loop.learner.first_learning_update(num_envs)
state, _ = training.run_window(training.first_state(), 0, learning, lambda report, done: None)
on_one = training.loop.of_first_device(state)
jax.block_until_ready((state, training.evaluate(on_one.agent, on_one.key, on_one.num_updates)))
print(predicted, peak_resident_bytes())
"""


@pytest.fixture(autouse=True)
def _away_from_the_users_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", "off")
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path))


# The mark is for the tests that use it: it takes seconds.
@pytest.fixture(scope="module", params=[pytest.param("tuned", marks=pytest.mark.slow)])
def tuned(tmp_path_factory):
    """Return the answer, its cache's text and what compiled, of one tuning."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, count_compilations() as compilations:
        patch.setenv("MYRIAD_COMPILATION_CACHE", "off")
        patch.setenv("MYRIAD_HOME", str(home))
        answer = suggest_scan_chunk_size(*ARGUMENTS, verbose=False)
    return answer, (home / "autotune_profiles.json").read_text(), compilations.names


@pytest.fixture
def known(tuned, tmp_path):
    """Copy the module's cache into this test's home, and return the answer in it."""
    (tmp_path / "autotune_profiles.json").write_text(tuned[1])
    return tuned[0]


@pytest.fixture
def no_compilation(monkeypatch):
    def refuse(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(CompiledTraining, "compile", refuse)


def only_answer():
    (entry,) = ProfileCache().read()["chunk_size_configs"].values()
    return entry


@pytest.mark.slow
def test_the_answer_is_one_of_the_candidates_and_the_untuned_default_is_another(known):
    default = create_config(ARGUMENTS[1], ARGUMENTS[2], 64, 10_000).resolve().scan_chunk_size
    candidates = {int(chunk) for chunk in only_answer()["candidates"]}
    assert type(known) is int
    assert known in candidates
    assert candidates == {*CANDIDATES, default}


def test_every_candidate_runs_the_same_program(tuned):
    assert tuned[2].count("jit(run)") == 1


def test_the_evidence_is_in_the_entry(known):
    entry = only_answer()
    assert entry["optimal_chunk_size"] == known
    assert entry["throughput_low"] <= entry["throughput_steps_per_s"] <= entry["throughput_high"]
    assert {c["verdict"] for c in entry["candidates"].values()} <= {
        "best",
        "indistinguishable",
        "slower",
    }
    assert [c["chunk_size"] for c in entry["candidates"].values() if c["verdict"] == "best"] == [
        known
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["validated_at"])


@pytest.mark.usefixtures("no_compilation")
def test_the_second_call_answers_from_the_cache_and_compiles_nothing(known, capsys):
    with count_compilations() as compilations:
        assert suggest_scan_chunk_size(*ARGUMENTS, verbose=False) == known
    assert compilations.names == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("known", "no_compilation")
@pytest.mark.parametrize(
    "change", [{"buffer_size": 4096}, {"num_envs": 65}, {"agent": "dqn"}], ids=str
)
def test_another_configuration_is_not_answered_from_the_cache(change):
    agent = "dqn" if "buffer_size" in change else "random"
    given = {"num_envs": 64, "env": "cartpole-control", "agent": agent} | change
    with pytest.raises(AssertionError, match="compiled"):
        suggest_scan_chunk_size(**given, verbose=False)


@pytest.mark.usefixtures("known", "no_compilation")
def test_a_copied_file_is_measured_again_on_other_hardware(monkeypatch):
    other = dataclasses.replace(fingerprint(), device_name="another processor")
    monkeypatch.setattr(tuner, "fingerprint", lambda: other)
    with pytest.raises(AssertionError, match="compiled"):
        suggest_scan_chunk_size(*ARGUMENTS, verbose=False)


@pytest.mark.slow
def test_it_says_what_it_does_each_candidate_and_the_answer(capsys):
    answer = suggest_scan_chunk_size(*ARGUMENTS)
    said = capsys.readouterr().out
    for name in ("hardware", "env cartpole-control", "agent random"):
        assert re.search(rf"^{name}.*: profiled in ", said, re.MULTILINE)
    for phase in ("compiling the training", "timing chunks"):
        assert re.search(rf"^{phase} \.\.\.\n(?:.*\n)*?{phase}: [\d.]+ s$", said, re.MULTILINE)
    assert_names_each_candidate_and_the_answer(said, answer)
    suggest_scan_chunk_size(*ARGUMENTS, force_revalidate=True)
    said = capsys.readouterr().out
    assert said.count(": cached\n") == 3
    assert "profiled" not in said


@pytest.mark.usefixtures("no_compilation")
def test_it_says_that_it_knew(known, capsys):
    assert suggest_scan_chunk_size(*ARGUMENTS) == known
    said = capsys.readouterr().out
    assert re.search(r"^cartpole-control:random:64:.*: cached$", said, re.MULTILINE)
    assert_names_each_candidate_and_the_answer(said, known)


def assert_names_each_candidate_and_the_answer(said, answer):
    for chunk in only_answer()["candidates"]:
        assert re.search(
            rf"^\W*{int(chunk):,}\b.*(best|indistinguishable|slower)", said, re.MULTILINE
        ), said
    (best,) = [line for line in said.splitlines() if re.match(r"\W*[\d,]+\b.*\bbest$", line)]
    assert f"{answer:,}" in best.split()


@pytest.mark.usefixtures("known", "no_compilation")
def test_force_revalidate_measures_again():
    with pytest.raises(AssertionError, match="compiled"):
        suggest_scan_chunk_size(*ARGUMENTS, force_revalidate=True, verbose=False)


@pytest.mark.slow
def test_a_chunk_that_the_user_has_is_a_candidate_and_nothing_else_of_the_configuration_changes():
    config = create_config("cartpole-control", "pid", 4, 10_000, scan_chunk_size=48)
    result = autotune(config, verbose=False, seconds=0)
    # Evaluations come every 500 steps: 512 and 1,024 would be cut off there, as the default is.
    kept = {chunk for chunk in CANDIDATES if chunk <= 500}
    assert {*kept, 48, 500} == {candidate.chunk_size for candidate in result.candidates}
    own = config.resolve().config
    assert result.config == own.model_copy(
        update={"scan_chunk_size": result.config.scan_chunk_size}
    )
    assert f"{result.scan_chunk_size:,}" in str(result)


@pytest.mark.usefixtures("no_compilation")
def test_two_billion_environments_are_refused_from_shapes_with_what_would_fit():
    with pytest.raises(
        InvalidArgumentError, match=r"^No valid chunk_size found for 2,000,000,000 environments"
    ) as e:
        suggest_scan_chunk_size(2 * 10**9, "cartpole-control", "dqn", verbose=False)
    assert re.search(
        r"they need .* of memory, and .* are free; fewer than [\d,]+ environments fit", str(e.value)
    )


@pytest.mark.usefixtures("no_compilation")
def test_a_limit_beyond_the_machine_refuses_what_the_machine_cannot_hold():
    with pytest.raises(InvalidArgumentError, match="No valid chunk_size found"):
        suggest_scan_chunk_size(
            2 * 10**9, "cartpole-control", "dqn", verbose=False, memory_limit=10**18
        )
    assert available_bytes(10**18) <= (fingerprint().memory_total_bytes or 10**18)


@pytest.mark.slow
@pytest.mark.parametrize(("num_envs", "limit"), [(1_500_000, 150 * MIB), (900_000, 96 * MIB)])
def test_what_exceeds_a_memory_limit_never_runs_and_what_is_named_instead_fits(
    monkeypatch, num_envs, limit
):
    monkeypatch.setattr(sys.modules[available_bytes.__module__], "resident_bytes", lambda: 0)
    sentence = (
        rf"^No valid chunk_size found for {num_envs:,} .* need \d+ MiB of .* "
        rf"{limit // MIB} MiB are free"
    )
    with monkeypatch.context() as patch:
        patch.setattr(tuner, "measure", lambda *_: pytest.fail("it ran"))
        with pytest.raises(InvalidArgumentError, match=sentence) as refused:
            suggest_scan_chunk_size(
                num_envs, "cartpole-control", "random", verbose=False, memory_limit=limit
            )
    named = int(
        re.search(r"at most about ([\d,]+) environments fit", str(refused.value))[1].replace(
            ",", ""
        )
    )
    assert num_envs / 10 < named < num_envs
    config = create_config("cartpole-control", "random", named, 10_000)
    assert autotune(config, verbose=False, seconds=0, memory_limit=limit).memory_bytes <= limit


def test_a_buffer_that_exceeds_a_memory_limit_is_refused_with_one_that_fits():
    limit = resident_bytes() + 100 * MIB
    with pytest.raises(InvalidArgumentError, match=r"; a buffer_size of about [\d,]+ fits\.$"):
        suggest_scan_chunk_size(
            8, "cartpole-control", "dqn", 10**9, verbose=False, memory_limit=limit
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [
        ("dqn", 1_000, 1_000_000),
        ("dqn", 100_000, 1_000_000),
        ("ppo", 1_024, None),
        ("ppo", 32_768, None),
    ],
    ids=str,
)
def test_memory_is_predicted_never_too_low_and_at_most_a_quarter_too_high(training):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PREDICT_AND_TRAIN, json.dumps(training)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    predicted, peak = map(int, run.stdout.split())
    assert peak <= predicted <= 1.25 * peak


def test_a_wrong_name_or_number_is_one_sentence():
    with pytest.raises(UnknownNameError, match="did you mean 'cartpole-control'"):
        suggest_scan_chunk_size(64, "cartpole-contrl", "random")
    with pytest.raises(UnknownNameError, match="did you mean 'random'"):
        suggest_scan_chunk_size(64, "cartpole-control", "randm")
    with pytest.raises(InvalidArgumentError, match=r"^num_envs must be .*, but got 0\.$"):
        suggest_scan_chunk_size(0, "cartpole-control", "random")


@pytest.mark.slow
def test_suggest_config_keeps_to_the_memory_and_says_what_it_found(capsys):
    limit = resident_bytes() + 200 * MIB
    config = suggest_config("cartpole-control", "random", memory_limit=limit, seconds=2)
    assert isinstance(config, TrainingConfig)
    own = create_config("cartpole-control", "random").resolve()
    assert (
        0
        <= config.num_envs * config.steps_per_env - own.num_envs * own.steps_per_env
        < config.num_envs
    )
    assert re.search(
        rf"^\s*{config.num_envs:,} environments: +[\d,]+ steps/s",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    tried = ProfileCache().read()["chunk_size_configs"].values()
    (entry,) = [e for e in tried if e["details"]["config"]["num_envs"] == config.num_envs]
    assert entry["memory_bytes"] <= 200 * MIB
    assert entry["throughput_steps_per_s"] == max(e["throughput_steps_per_s"] for e in tried)


@pytest.mark.slow
def test_suggest_config_stops_at_what_fits_as_a_state_but_not_as_a_program(monkeypatch):
    monkeypatch.setattr(sys.modules[available_bytes.__module__], "resident_bytes", lambda: 0)
    monkeypatch.setattr(tuner, "measure", lambda *_: Rounds(1_024, {16: [0.1, 0.2]}))
    assert (
        suggest_config("cartpole-control", "random", memory_limit=80 * MIB, verbose=False).num_envs
        < 1_000_000
    )


def test_the_model_finds_the_cost_of_a_call_and_of_the_rest():
    model = _Model.fit({calls: 0.01 + 0.002 * calls for calls in (1, 2, 4, 8, 100)})
    assert (model.per_call, model.rest) == (pytest.approx(0.002), pytest.approx(0.01))
    assert model.seconds(30) == pytest.approx(0.07)
    assert _Model.fit({1: 0.5, 10: 0.4}).per_call == 0  # no call costs less than nothing
    noisy = _Model.fit({1: 0.1, 2: 0.5, 10: 4.0})
    assert noisy.rest == 0
    assert noisy.per_call > 0
    assert _Model.fit({3: 0.5}).seconds(7) == pytest.approx(0.5)


def test_ratios_go_round_by_round_so_that_a_slow_round_does_not_count():
    slow_at_times = [1.0, 9.0, 1.0, 3.0, 1.0, 1.0, 5.0]
    middle, low, high = _against([1.5 * t for t in slow_at_times], slow_at_times)
    assert (middle, low, high) == (pytest.approx(1.5),) * 3


def made_up(seconds):
    """Choose where 1,024 steps of 4 environments take `seconds(calls, a_round)`."""
    rounds = {size: [seconds(1024 // size, a_round) for a_round in range(9)] for size in CANDIDATES}
    return choose(Rounds(1024, rounds), num_envs=4)


def test_the_smallest_chunk_that_is_nearly_the_best_is_chosen():
    found = made_up(lambda calls, _: 1.0 + 0.001 * calls)
    best = 1.001
    assert 1.0 + 0.001 * -(-1024 // found.chunk_size) <= 1.02 * best
    assert (
        1.0 + 0.001 * -(-1024 // (found.chunk_size // 4)) > 1.02 * best
    )  # not one that is far too large
    assert found.steps_per_s == pytest.approx(1024 * 4 / (1.0 + 0.001 * 1024 / found.chunk_size))


def test_a_flat_curve_chooses_the_smallest():
    found = made_up(lambda calls, _: 1.0)
    assert found.chunk_size == 1
    assert {candidate.verdict for candidate in found.candidates[1:]} == {"indistinguishable"}


def test_what_was_measured_outweighs_the_model():
    found = made_up(lambda calls, _: 0.5 if calls == 8 else 1.0)
    assert found.chunk_size == 128


def test_a_verdict_needs_an_interval_that_excludes_equality():
    noise = [0.9, 1.1, 1.0, 0.95, 1.05, 1.2, 0.8, 1.0, 1.1]
    found = made_up(
        lambda calls, a_round: (2.0 if calls > 100 else 1.0) * (noise[a_round] ** (calls > 1)),
    )
    verdicts = {candidate.chunk_size: candidate for candidate in found.candidates}
    assert verdicts[found.chunk_size].verdict == "best"
    assert verdicts[1].verdict == "slower"
    assert verdicts[1].low > 1
    unclear = [c for c in found.candidates if c.verdict == "indistinguishable"]
    assert unclear
    assert all(c.low <= 1 for c in unclear)
    assert all(c.low <= c.slowdown <= c.high for c in found.candidates)


def test_the_entry_is_the_median_of_what_was_timed():
    seconds = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    found = made_up(lambda calls, a_round: seconds[a_round])
    assert found.steps_per_s == pytest.approx(4096 / statistics.median(seconds))
    assert found.steps_per_s_low < found.steps_per_s < found.steps_per_s_high


def test_a_chunk_that_an_evaluation_would_cut_off_is_not_offered():
    rounds = {size: [1.0 + 0.01 * (1024 // size)] * 9 for size in CANDIDATES}
    everywhere = choose(Rounds(1024, rounds), num_envs=4)
    assert everywhere.chunk_size > 32
    for window in (1, 24, 64, 500, 5_000):
        found = choose(Rounds(1024, rounds), 4, window)
        assert [c.chunk_size for c in found.candidates] == [n for n in CANDIDATES if n <= window]
        assert [c.chunk_size for c in found.candidates if c.verdict == "best"] == [found.chunk_size]
        expected = everywhere.chunk_size if window >= everywhere.chunk_size else found.chunk_size
        assert found.chunk_size == expected


def stretch_of(seconds_of_a_call, unit, num_updates=8):
    """Return a stretch of updates of so many steps, and the calls it makes."""
    calls = []

    class Timed(Stretch):
        def __init__(self):
            self._unit = unit
            self.num_updates, self.seconds = num_updates, num_updates * seconds_of_a_call(1)

        def _run(self, num_updates, chunk):
            calls.append((num_updates, chunk))
            return sum(
                seconds_of_a_call(min(chunk, num_updates - done))
                for done in range(0, num_updates, chunk)
            )

    return Timed(), calls


def test_chunks_that_are_one_call_are_one_candidate():
    stretch, calls = stretch_of(lambda updates: 0.001 * updates, unit=64, num_updates=16)
    assert stretch.offered({*CANDIDATES, 1_000}) == [64, 128, 256, 512, 1024]
    stretch.times(stretch.offered(CANDIDATES), 0)
    assert {chunk for _, chunk in calls} == {1, 2, 4, 8, 16}


def test_every_candidate_is_timed_whole_and_one_that_takes_too_long_is_not_offered():
    stretch, calls = stretch_of(lambda updates: 0.001 * updates, unit=1)
    offered = stretch.offered(CANDIDATES)
    assert offered == [1, 2, 4, 8, 16, 32]  # a call of 64 takes over 0.04 s
    times = stretch.times(offered, 0)
    assert all(num_updates >= chunk for num_updates, chunk in calls)
    assert {chunk for _, chunk in calls} == set(offered)
    for seconds in times.values():  # each of 8 updates, however long the call
        assert seconds == pytest.approx([0.008] * len(seconds))


def test_calls_that_cost_far_more_than_their_steps_take_a_second_at_most():
    stretch, calls = stretch_of(lambda updates: 4e-4 + 1e-6 * updates, unit=1, num_updates=1024)
    times = stretch.times(CANDIDATES, 0)
    assert sum(num * (1e-6 + 4e-4 / chunk) for num, chunk in calls) < 1
    for size, seconds in times.items():  # of the whole stretch, though it is timed on a part
        assert seconds == pytest.approx([1024 * 1e-6 + 4e-4 * 1024 / size] * len(seconds))


@pytest.mark.parametrize(("unit", "update_s"), [(16, 0.5), (2048, 0.0)], ids=["slow", "long"])
def test_a_single_candidate_is_not_timed_against_itself(unit, update_s):
    class Training:
        loop = SimpleNamespace(learner=SimpleNamespace(first_learning_update=lambda _: 1))
        resolved = SimpleNamespace(learner=SimpleNamespace(steps_per_update=unit), num_envs=4)
        calls = 0

        def first_state(self):
            return None

        def run_window(self, state, *_):
            self.calls += 1
            time.sleep(update_s)
            return state, None

    training = Training()
    rounds = measure(training, {500, 1_000}, 10.0)
    assert training.calls <= 4  # what it takes to know how long an update is
    assert {size: len(seconds) for size, seconds in rounds.seconds.items()} == {unit: 1}
    (candidate,) = choose(rounds, num_envs=4).candidates
    assert candidate.why == "the only one, so the best"


@pytest.mark.slow
def test_a_real_training_is_timed_in_calls_of_every_whole_candidate(monkeypatch):
    runs = []
    run_window = CompiledTraining.run_window

    def noted(self, state, done, boundary, on_report, *rest):
        runs.append((boundary - done, self.chunk))
        return run_window(self, state, done, boundary, on_report, *rest)

    monkeypatch.setattr(CompiledTraining, "run_window", noted)
    shape = {"num_envs": 4, "steps_per_env": 1_024, "rollout_steps": 16}
    config = create_config("cartpole", "ppo", **shape, **{"agent.hidden_sizes": (4,)})
    result = autotune(config, verbose=False, seconds=0)
    unit = config.resolve().learner.steps_per_update
    for candidate in result.candidates:
        assert any(num >= chunk == candidate.chunk_size // unit for num, chunk in runs)
        taken = result.resolved.with_chunk(candidate.chunk_size)
        assert taken.scan_chunk_size == candidate.chunk_size <= taken.eval_frequency
    assert len(result.candidates) == len({c.chunk_size // unit for c in result.candidates})


# --- the same question asked in other words ---


@pytest.mark.parametrize(("agent", "num_envs"), [("dqn", 100_000), ("ppo", 102_400), ("pid", 8)])
def test_every_way_to_ask_has_the_same_key(agent, num_envs):
    asked = [
        make_config("cartpole-control", agent, num_envs, suggest.STEPS_PER_ENV),
        create_config("cartpole-control", agent, num_envs),
        create_config("cartpole-control", agent, num_envs, 5_000, eval_frequency=100),
        create_config("cartpole-control", agent, num_envs, total_steps=10**9, target_return=9.0),
    ]
    machine = fingerprint()
    resolved = [config.resolve().config for config in asked]
    found = {keys.key(each, machine, keys.details(each, machine)) for each in resolved}
    assert len(found) == 1


@pytest.mark.slow
def test_the_recipe_for_a_cluster_measures_once(tmp_path, monkeypatch, capsys):
    measured = []
    measure = tuner.measure

    def counted(*args):
        measured.append(args)
        return measure(*args)

    monkeypatch.setattr(tuner, "measure", counted)
    asked = ["--env", "cartpole-control", "--agent", "random", "--num-envs", "10000"]
    assert main(["autotune", *asked]) == 0
    assert main(["autotune", "--export", str(tmp_path / "profiles.json")]) == 0
    (tmp_path / "node").mkdir()
    (tmp_path / "profiles.json").rename(tmp_path / "node" / "autotune_profiles.json")
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "node"))
    create_config("cartpole-control", "random", 10_000, auto_tune=True)
    create_config("cartpole-control", "random", 10_000, 500, eval_frequency=100, auto_tune=True)
    suggest_scan_chunk_size(10_000, "cartpole-control", "random")
    folder = str(tmp_path / "run")
    assert main(["train", *asked, "--auto-tune", "--run-folder", folder, "--quiet"]) == 0
    assert len(measured) == 1
    assert capsys.readouterr().out.count(": cached\n") == 4


@pytest.mark.usefixtures("no_compilation")
def test_an_answer_says_that_it_is_for_a_process_without_configure(known, capsys, monkeypatch):
    suggest_scan_chunk_size(*ARGUMENTS)
    said = capsys.readouterr().out
    assert ":configured:" in said
    assert "configure()" not in said
    cached = only_answer()
    monkeypatch.setenv("XLA_FLAGS", "")
    config = make_config(ARGUMENTS[1], ARGUMENTS[2], ARGUMENTS[0]).resolve().config
    key = keys.key(config, fingerprint(), keys.details(config, fingerprint()))
    ProfileCache().update("chunk_size_configs", key, lambda _: cached)
    assert suggest_scan_chunk_size(*ARGUMENTS) == known
    said = capsys.readouterr().out
    assert ":unconfigured:" in said
    assert "configure() was not called: this holds only for processes without it" in said


@pytest.mark.usefixtures("no_compilation")
def test_create_config_tunes_at_once_and_refuses_a_chunk_beside_it(known, capsys):
    config = create_config("cartpole-control", "random", 64, 1_000_000, auto_tune=True)
    assert config.scan_chunk_size == known
    assert "cached" in capsys.readouterr().out
    untuned = create_config("cartpole-control", "random", 64, 1_000_000)
    assert config == untuned.model_copy(update={"scan_chunk_size": known})
    with pytest.raises(InvalidArgumentError, match=r"auto_tune .*scan_chunk_size.* but got 16\.$"):
        create_config("cartpole-control", "random", 64, scan_chunk_size=16, auto_tune=True)


@pytest.mark.usefixtures("no_compilation")
def test_the_command_answers_as_the_function_does(known, capsys, monkeypatch):
    command = ["autotune", "--env", "cartpole-control", "--agent", "random", "--num-envs", "64"]
    assert main(command) == 0
    assert ": cached\n" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="compiled"):
        main([*command, "--force"])
    assert main([*command[:-1], "63", "--memory-limit", "1"]) == 2
    assert capsys.readouterr().err.startswith("No valid chunk_size found for 63 environments")


def test_the_command_shows_exports_and_clears_the_cache(known, tmp_path, capsys):
    assert main(["autotune", "--show"]) == 0
    assert re.search(rf"cartpole-control:random:64:.* {known:,}\b", capsys.readouterr().out)
    assert main(["autotune", "--export", str(tmp_path / "copy.json")]) == 0
    assert ProfileCache(tmp_path / "copy.json").read() == ProfileCache().read()
    assert main(["autotune", "--export", str(tmp_path / "copy.json")]) == 2
    assert "copy.json exists: name another file" in capsys.readouterr().err
    assert main(["autotune", "--export", str(tmp_path / "copy.json"), "--force"]) == 0
    assert main(["autotune", "--clear"]) == 0
    assert ProfileCache().read()["chunk_size_configs"] == {}
    assert main(["autotune"]) == 2
    assert "--env" in capsys.readouterr().err


@pytest.mark.slow
def test_the_benchmark_of_a_known_size_tunes_in_setup_cache_and_only_asks_again(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (workload,) = Autotune.params
    Autotune().setup_cache()
    suite = Autotune()
    suite.setup(workload)
    with count_compilations() as compilations:
        suite.time_cached(workload)
    assert compilations.count == 0
    assert json.loads((tmp_path / "profiles.json").read_text())["chunk_size_configs"]
