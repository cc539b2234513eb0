"""What all scripts share: a mistake in a flag is one sentence and exit code 2."""

import importlib
import json
import re

import pytest

from benchmarks.harness import process
from benchmarks.harness.results import COLUMNS, ROOT, read_csv, samples_beside
from benchmarks.runner import ratio_table, readable
from tests.child_processes import python

SCRIPTS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if "SCRIPT = Script(" in path.read_text()
)
NUMBER = "must be a whole number of at least 1, but got"
REFUSED = [
    ("baselines", "--env snak", "did you mean 'snake'?"),
    ("baselines", "--env cartpole", "there is no contest in cartpole-control"),
    ("baselines", "--preset fast", "no agent has a preset 'fast'"),
    ("comparison", "--library gymnaz", "library 'gymnaz' is unknown; did you mean 'gymnax'?"),
    ("comparison", "--training --library gymnax", "--training measures what suite.toml declares"),
    ("compile", "--agent dqm", "unknown agent 'dqm'; did you mean 'dqn'?"),
    ("compile", f"--output {__file__}/folder", "test_runner.py is no folder."),
    ("gpu_report", "--output nowhere/runs.csv", "nowhere/runs.csv can't be written: No such file"),
    ("learning", "--seeds -1", f"{NUMBER} '-1'"),
    ("learning", "--set x", "--set needs --networks"),
    ("learning", "--networks mlp --num-envs 8", "--num-envs can't be given with --networks"),
    ("learning", "--networks cnn mlp --set cnnn:x=1", "--set must begin with one of cnn, mlp"),
    ("learning", "--networks cnn --set gamma=", "--set must be NAME=VALUE in TOML"),
    ("presets", "--agent random", "declares no presets of random in any environment"),
    ("run_all", "--only memry", "suite 'memry' is unknown; did you mean 'memory'?"),
    ("scan_chunk", "--scan-chunk-sizes 0", f"argument --scan-chunk-sizes: {NUMBER} '0'"),
    ("scan_chunk", "--env cartpol", "unknown environment 'cartpol'; did you mean 'cartpole'?"),
    ("throughput", "--full --num-envs 5", "argument --num-envs: not allowed with argument --full"),
    ("throughput", "--targets --num-steps 5", "--targets measures what suite.toml declares"),
    ("throughput", "--targets --env a.module:Class", "no target is about a.module:Class; there"),
    ("training", "--agent random", "declares no training of random in any environment; there are"),
    *((script, "--faster", "unrecognized arguments: --faster") for script in SCRIPTS),
]


@pytest.mark.parametrize(
    ("script", "flags", "sentence"), REFUSED, ids=[" ".join(each[:2])[:60] for each in REFUSED]
)
def test_a_mistake_is_one_sentence_and_exit_code_2(script, flags, sentence, monkeypatch, capsys):
    # A run that goes on after a mistake would begin with a child process.
    monkeypatch.setattr(process.Supervised, "__init__", lambda *_, **__: pytest.fail("it began"))
    assert importlib.import_module(f"benchmarks.{script}").main(flags.split()) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_wrong_tier_is_one_sentence_and_exit_code_2_although_imports_meet_it():
    done = python("-m", "benchmarks.throughput", cwd=ROOT, code=2, MYRIAD_TIER="ful")
    hint = "did you mean 'full'? allowed: quick, full."
    assert done.stderr == f"MYRIAD_TIER 'ful' is unknown; {hint}\n"


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "-"), (12, "12 B"), (2048, "2.0 KiB"), (3 << 30, "3.0 GiB")]
)
def test_bytes_are_written_in_the_unit_that_fits(num_bytes, text):
    assert readable(num_bytes) == text


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_describes_every_flag(script, capsys):
    module = importlib.import_module(f"benchmarks.{script}")
    with pytest.raises(SystemExit):
        module.main(["--help"])
    printed = capsys.readouterr().out
    assert all(flag.partition("/")[0] in printed for flag in module.SCRIPT.flags)


# Flags of a small run, and its rows.
RUNS = {
    "compile": (
        "--agent random --env cartpole --num-envs 64",
        [{"suite": name, "samples": "1"} for name in ("compile", "compile_cached")],
    ),
    "memory_profile": ("--num-envs 64", [{"suite": "memory_envs", "scan_chunk_size": "128"}]),
    "scan_chunk": (
        "--num-envs 64 --scan-chunk-sizes 8 16",
        [{"suite": "scan_chunk", "scan_chunk_size": size, "samples": "11"} for size in ("8", "16")],
    ),
}
OF_ALL = {"status": "ok", "num_envs": "64", "agent": "random", "env": "cartpole-control"}
ABOVE_0 = {
    "compile": ("compile_s", "run_s"),
    "memory_profile": ("argument_bytes", "temp_bytes", "peak_bytes"),
    "scan_chunk": ("steps_per_s_low", "steps_per_s_high", "compile_s", "argument_bytes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", RUNS)
def test_a_run_writes_its_rows_and_their_samples_and_says_what_to_report(
    script, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("benchmarks.compile.QUICK_LAUNCHES", 1)
    flags, expected = RUNS[script]
    main = importlib.import_module(f"benchmarks.{script}").main
    assert main([*flags.split(), "--output", str(tmp_path)]) == 0
    (table,) = tmp_path.glob("*.csv")
    rows = read_csv(table)
    for row, said in zip(rows, expected, strict=True):
        assert tuple(row) == COLUMNS
        assert row | OF_ALL | said == row
        assert all(float(row[column]) > 0 for column in ABOVE_0[script])
    assert table.name.startswith(f"{expected[0]['suite']}_{rows[0]['device']}_")
    beside = json.loads(samples_beside(table).read_text())
    assert flags in beside["command"]
    assert beside["alternations"]
    of_run = rows[0]
    assert re.search(
        rf"{re.escape(of_run['device_name'])}, {of_run['cores']} cores.* "
        rf"jax {of_run['jax_version']}, commit {of_run['commit'][:10]}.*\n"
        rf"reproduce with: .*{re.escape(flags)}",
        capsys.readouterr().out,
    )


def test_ratios_are_taken_round_by_round():
    table = ratio_table("arm", {"slow": [100.0, 200.0], "fast": [300.0, 600.0]})
    assert "| times slow (least to most) |" in table
    assert " 3.00 (3.00 to 3.00) |" in table
