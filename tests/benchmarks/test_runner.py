"""What all scripts share: a mistake in a flag is one sentence and exit code 2."""

import importlib
import json
import re

import pytest

from benchmarks.harness import process
from benchmarks.harness.alternation import Budget
from benchmarks.harness.results import COLUMNS, ROOT, read_csv, samples_beside
from benchmarks.runner import Script
from tests.child_processes import python

FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(
    path.stem for path in FOLDER.glob("*.py") if "SCRIPT = Script(" in path.read_text()
)
NUMBER = "must be a whole number of at least 1, but got"
REFUSED = [
    ("comparison", "--library gymnaz", "library 'gymnaz' is unknown; did you mean 'gymnax'?"),
    ("comparison", "--training --library gymnax", "--library does not go with --training"),
    ("training", "--agent dqm", "unknown agent 'dqm'; did you mean 'dqn'?"),
    ("training", f"--output {__file__}/folder", "test_runner.py/folder"),
    ("learning", f"--output {__file__}/runs.csv", "test_runner.py can't be written: Not a dir"),
    ("learning", "--output benchmarks", "--output must be a file, but "),
    ("learning", "--seeds -1", f"{NUMBER} '-1'"),
    ("learning", "--agent sac", "no learning target is about sac."),
    ("learning", "--seconds 9", "--seconds needs --against rejax"),
    ("learning", "--published nobody", "row 'nobody' is unknown"),
    ("learning", "--published --env snake", "--env does not go with --published"),
    ("learning", "--against rejax --env Snake", "environment 'Snake' is unknown"),
    ("learning", "--against rejax --agent pqn", "agent beside rejax 'pqn' is unknown"),
    ("presets", "--agent random", "declares no presets of random in any environment"),
    ("run_all", "--only memry", "suite 'memry' is unknown; did you mean 'memory'?"),
    ("scan_chunk", "--scan-chunk-sizes 0", f"argument --scan-chunk-sizes: {NUMBER} '0'"),
    ("scan_chunk", "--env cartpol", "unknown environment 'cartpol'; did you mean 'cartpole'?"),
    ("throughput", "--full --num-envs 5", "argument --num-envs: not allowed with argument --full"),
    ("throughput", "--targets --num-steps 5", "--num-steps does not go with --targets"),
    ("throughput", "--rounds 5", "--rounds needs --devices"),
    ("throughput", "--devices --gpu", "argument --gpu: not allowed with argument --devices"),
    ("throughput", "--gpu --env acrobot.module:Class", "--gpu measures nothing of any agent in"),
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


def test_the_tier_is_read_while_suites_are_imported():
    names = "from benchmarks.throughput import Throughput; print(*Throughput.params)"
    assert "cartpole-1m" in python("-c", names, cwd=ROOT, MYRIAD_TIER="full").stdout.split()
    done = python("-m", "benchmarks.throughput", cwd=ROOT, code=2, MYRIAD_TIER="ful")
    hint = "did you mean 'full'? allowed: quick, full."
    assert done.stderr == f"MYRIAD_TIER 'ful' is unknown; {hint}\n"


# Flags of a small run, its rows, and columns of them that are above 0.
RUNS = {
    "memory_profile": (
        "--num-envs 64",
        [{"suite": "memory_envs", "scan_chunk_size": "128"}],
        ("argument_bytes", "temp_bytes", "peak_bytes"),
    ),
    "scan_chunk": (
        "--num-envs 64 --scan-chunk-sizes 8 16",
        [{"suite": "scan_chunk", "scan_chunk_size": size, "samples": "11"} for size in ("8", "16")],
        ("steps_per_s_low", "steps_per_s_high", "compile_s", "argument_bytes"),
    ),
    "throughput": (
        "--num-envs 64 --scan-chunk-size 16 --num-steps 24",
        [
            {"library": name, "scan_chunk_size": "16", "num_steps": "24"}
            for name in ("myriad", "gymnax")
        ],
        ("steps_per_s_low", "steps_per_s_high", "compile_s", "peak_bytes"),
    ),
    "comparison": (
        "--num-envs 64 --steps-per-env 200 --library gymnasium,gymnasium-vector",
        [
            {"library": "myriad", "ratio": ""},
            {"library": "gymnasium", "status": "refused"},
            {"library": "gymnasium-vector"},
        ],
        ("steps_per_s_low", "steps_per_s_high"),
    ),
}
OF_ALL = {"status": "ok", "num_envs": "64", "agent": "random", "env": "cartpole-control"}


@pytest.mark.slow
@pytest.mark.parametrize("script", RUNS)
def test_a_run_writes_its_rows_and_samples_and_says_what_to_report(
    script, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("gymnax")
    monkeypatch.setattr("benchmarks.comparison.BUDGET", Budget(num_rounds=6, max_s=2.0))
    monkeypatch.setenv("JAX_PLATFORM_NAME", "cpu")
    flags, expected, above_0 = RUNS[script]
    main = importlib.import_module(f"benchmarks.{script}").main
    assert main([*flags.split(), "--output", str(tmp_path)]) == 0
    (table,) = tmp_path.glob("*.csv")
    rows = read_csv(table)
    for row, said in zip(rows, expected, strict=True):
        assert tuple(row) == COLUMNS
        assert row | OF_ALL | said == row
        if row["status"] == "ok":
            assert all(float(row[column]) > 0 for column in above_0)
    of_run = rows[0]
    assert table.name.startswith(f"{of_run['suite']}_{of_run['device']}_")
    beside = json.loads(samples_beside(table).read_text())
    # Between the two are the XLA options of this process.
    assert beside["command"].startswith("JAX_PLATFORM_NAME=cpu ")
    assert f" python benchmarks/{script}.py {flags}" in beside["command"]
    assert beside["alternations"]
    printed = capsys.readouterr().out
    for line, said in {
        "hardware": re.escape(f"{of_run['device_name']}, {of_run['cores']} cores"),
        "versions": f"myriad {of_run['library_version']}, .*jax {of_run['jax_version']}, commit ",
        "configuration": "cartpole-control with random, 64 environments, chunk ",
        "rows": str(table),
        "raw samples": str(samples_beside(table)),
        "reproduce with": re.escape(beside["command"]),
    }.items():
        assert re.search(rf"(?m)^{line}: +{said}", printed), line
    assert (tmp_path / "throughput_scaling.png").exists() == (script == "throughput")


# --- a file that exists is replaced only where the user asked for it

WRITERS = [name for name in SCRIPTS if '"--output"' not in (FOLDER / f"{name}.py").read_text()]


@pytest.mark.parametrize(
    ("script", "name"),
    [*((script, "mine.csv") for script in WRITERS), (WRITERS[0], "mine_samples.json")],
)
def test_a_file_that_exists_is_replaced_only_by_force(script, name, tmp_path, capsys):
    path = tmp_path / name
    path.write_text("mine")
    main = importlib.import_module(f"benchmarks.{script}").main
    assert main(["--output", str(tmp_path / "mine.csv")]) == 2
    assert f"{path} exists" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_an_empty_file_a_folder_and_a_forced_file_are_written(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "mine.csv").write_text("mine")
    for flags in (["empty.csv"], ["."], ["new.csv"], ["mine.csv", "--force"]):
        script = Script("script", "A script.", lambda run: None)
        assert script.parse(["--output", str(tmp_path / flags[0]), *flags[1:]])
