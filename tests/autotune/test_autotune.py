"""The autotuner's answer is for the program that runs, has evidence, is kept, and fits."""

import json
import re
import sys

import pytest

from myriad import create_config
from myriad.autotune import ProfileCache, suggest_scan_chunk_size, tuner
from myriad.autotune.search import CANDIDATES, choose
from myriad.cli import main
from myriad.cli.arguments import parse
from myriad.engine.memory import available_bytes
from myriad.errors import InvalidArgumentError
from myriad.training.compiled import CompiledTraining
from tests.child_processes import python
from tests.compilations import count_compilations

MIB = 1 << 20
ARGUMENTS = (64, "cartpole-control", "random")  # what the module's one tuning is of
# A child, since a process's real peak is that of its whole life.
PREDICT_AND_TRAIN = """
import json, sys
import jax
from benchmarks.harness.worker import peak_resident_bytes
from myriad import configure, create_config
configure(cpu_devices=2)
from myriad.host import resident_bytes
from myriad.engine.memory import most_bytes
from myriad.training.compiled import CompiledTraining

agent, num_envs, buffer_size = json.loads(sys.argv[1])
config = create_config("cartpole-control", agent, num_envs, 10_000, buffer_size=buffer_size)
training = CompiledTraining(config)
training.compile()
predicted = resident_bytes() + most_bytes(training.stated_bytes())
# The first update that learns touches every buffer: each later one reuses them.
learning = training.loop.learner.first_learning_update(num_envs)
state, _ = training.run_window(training.first_state(), 0, learning, lambda report, done: None)
on_one = training.loop.of_first_device(state)
played = training.programs["evaluate"](*training.evaluation_args(on_one))
jax.block_until_ready((state, played))
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
    return answer, (home / "autotune_profiles.json").read_text(), compilations


@pytest.fixture
def known(tuned, tmp_path):
    """Copy the module's cache into this test's home, and return the answer in it."""
    (tmp_path / "autotune_profiles.json").write_text(tuned[1])
    return tuned[0]


def test_the_answer_is_one_of_the_candidates_with_its_evidence(known, tuned):
    (entry,) = ProfileCache().read()["chunk_size_configs"].values()
    default = create_config(ARGUMENTS[1], ARGUMENTS[2], 64, 10_000).scan_chunk_size
    candidates = {int(chunk): found for chunk, found in entry["candidates"].items()}
    assert candidates.keys() == {*CANDIDATES, default}
    assert [chunk for chunk, found in candidates.items() if found["verdict"] == "best"] == [known]
    assert entry["optimal_chunk_size"] == known
    assert entry["throughput_low"] <= entry["throughput_steps_per_s"] <= entry["throughput_high"]
    assert tuned[2].count("jit(run)") == 1  # every candidate runs the same program


@pytest.mark.slow
def test_what_exceeds_a_memory_limit_never_runs_and_what_would_fit_is_named(monkeypatch):
    monkeypatch.setattr(sys.modules[available_bytes.__module__], "resident_bytes", lambda: 0)
    monkeypatch.setattr(tuner, "measure", lambda *_: pytest.fail("it ran"))
    with pytest.raises(InvalidArgumentError, match="96 MiB are free") as refused:
        suggest_scan_chunk_size(900_000, *ARGUMENTS[1:], verbose=False, memory_limit=96 * MIB)
    assert re.search(r"at most about \d+,\d+ environments fit", str(refused.value))


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [
        ("dqn", 1_000, 1_000_000),
        pytest.param(("dqn", 100_000, 1_000_000), marks=pytest.mark.long),
        pytest.param(("ppo", 1_024, None), marks=pytest.mark.long),
        pytest.param(("ppo", 32_768, None), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_memory_is_predicted_never_too_low_and_at_most_a_quarter_too_high(training):
    done = python("-c", PREDICT_AND_TRAIN, json.dumps(training))
    predicted, peak = map(int, done.stdout.split())
    assert peak <= predicted <= 1.25 * peak


def made_up(seconds):
    """Choose where 1,024 steps of 4 environments take `seconds(calls, a_round)`."""
    rounds = {size: [seconds(1024 // size, a_round) for a_round in range(9)] for size in CANDIDATES}
    return choose(rounds, 4 * 1024)


def test_the_smallest_chunk_that_is_nearly_the_best_is_chosen():
    found = made_up(lambda calls, _: 1.0 + 0.001 * calls)
    # Within 2% of the best, and not far too large.
    assert 1.0 + 0.001 * -(-1024 // found.scan_chunk_size) <= 1.02 * 1.001
    assert 1.0 + 0.001 * -(-1024 // (found.scan_chunk_size // 4)) > 1.02 * 1.001
    assert found.steps_per_s == pytest.approx(
        1024 * 4 / (1.0 + 0.001 * 1024 / found.scan_chunk_size)
    )


def test_a_slow_round_does_not_count_and_a_verdict_needs_an_interval_without_equality():
    noise = [0.9, 9.0, 1.0, 0.95, 1.05, 1.2, 0.8, 1.0, 1.1]
    found = made_up(
        lambda calls, a_round: (2.0 if calls > 100 else 1.0) * (noise[a_round] ** (calls > 1)),
    )
    verdicts = {candidate.chunk_size: candidate for candidate in found.candidates}
    assert verdicts[found.scan_chunk_size].verdict == "best"
    assert verdicts[1].verdict == "slower"
    assert verdicts[1].slowdown == pytest.approx(2, rel=0.1)
    assert verdicts[1].low > 1
    unclear = [c for c in found.candidates if c.verdict == "indistinguishable"]
    assert unclear
    assert all(c.low <= 1 for c in unclear)
    assert all(c.low <= c.slowdown <= c.high for c in found.candidates)


@pytest.mark.slow
def test_an_answer_is_measured_once_for_every_way_to_ask(known, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(CompiledTraining, "compile", lambda *_: pytest.fail("compiled"))
    copy = tmp_path / "copy.json"
    for code, words in ((0, []), (2, []), (0, ["--force"])):
        assert main(["autotune", "--export", str(copy), *words]) == code
    assert main(["autotune", "--clear"]) == 0
    assert ProfileCache().read()["chunk_size_configs"] == {}
    # The recipe for a cluster: another node gets the file.
    (tmp_path / "node").mkdir()
    copy.rename(tmp_path / "node" / "autotune_profiles.json")
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "node"))
    assert main(["autotune", "--show"]) == 0
    assert re.search(rf"cartpole-control:random:64:.* {known:,}\b", capsys.readouterr().out)
    asked = ["--env", "cartpole-control", "--agent", "random", "--num-envs", "64"]
    assert main(["autotune", *asked]) == 0
    configs = [
        create_config(*ARGUMENTS[1:], 64, auto_tune=True),
        create_config(*ARGUMENTS[1:], 64, 500, eval_frequency=100, auto_tune=True),
        create_config(*ARGUMENTS[1:], 64, 10**6, auto_tune=True),
        parse(["train", *asked, "--auto-tune"]).described()[0],
    ]
    for config in configs:  # An evaluation would cut a longer chunk off.
        assert config.scan_chunk_size == known or known > config.eval_frequency
    assert suggest_scan_chunk_size(*ARGUMENTS) == known
    said = capsys.readouterr().out
    assert said.count(": cached\n") == 6
    assert re.search(rf"^\W*{known:,}\b.*\bbest$", said, re.MULTILINE)
    assert suggest_scan_chunk_size(*ARGUMENTS, verbose=False) == known
    assert capsys.readouterr() == ("", "")
    for otherwise in (["--force"], ["--num-envs", "65"]):
        with pytest.raises(pytest.fail.Exception, match="compiled"):
            main(["autotune", *asked, *otherwise])
    assert main(["autotune", *asked[:-1], "63", "--memory-limit", "1"]) == 2
    assert capsys.readouterr().err.startswith("No valid chunk_size found for 63 environments")
    assert main(["autotune"]) == 2
    assert "--env" in capsys.readouterr().err
