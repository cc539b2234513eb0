import csv
import json

import pytest

from benchmarks.harness.results import COLUMNS, new_row
from myriad.cli import main

MEASURED = {
    "library": "myriad",
    "library_version": "0.1.0",
    "env": "cartpole-control",
    "agent": "random",
    "num_envs": 10_000,
    "scan_chunk_size": 256,
    "device": "cpu",
    "device_name": "AMD EPYC",
    "cores": 2,
    "memory_total_bytes": 16 << 30,
    "steps_per_s": 1234567.8,
    "steps_per_s_low": 1200000.0,
    "steps_per_s_high": 1300000.0,
    "run_s": 0.25,
    "samples": 11,
    "compile_s": 0.5,
    "peak_bytes": 1 << 29,
    "package_version": "0.1.0",
    "commit": "0123456789abcdef-dirty",
    "jax_version": "0.10.2",
    "python_version": "3.11.7",
}


def write(path, *rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(new_row("throughput", "20261121T101112Z") | row for row in rows)
    return path


def cite(path, capsys):
    assert main(["cite", str(path)]) == 0
    return capsys.readouterr().out


def test_a_citation_names_machine_versions_commit_date_figures_and_command(tmp_path, capsys):
    path = write(tmp_path / "run.csv", MEASURED)
    (tmp_path / "run_samples.json").write_text(
        json.dumps({"command": "python benchmarks/throughput.py --full"})
    )
    assert cite(path, capsys) == (
        "AMD EPYC, 2 cores, 16.00 GiB (cpu); Myriad 0.1.0, commit 0123456789 with local changes; "
        "JAX 0.10.2, Python 3.11.7; measured 2026-11-21.\n\n"
        "| suite | library | environment | agent | environments | chunk | "
        "steps/s (95% interval) | run, s | "
        "compiling, s | peak memory |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| throughput | myriad 0.1.0 | cartpole-control | random | 10,000 | 256 | "
        "1,234,568 (1,200,000 to 1,300,000) | "
        "0.25 | 0.50 | 0.50 GiB |\n\n"
        "Reproduce with: `python benchmarks/throughput.py --full`\n"
    )


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"samples": 1}, "| 1,234,568 | 0.25 |"),
        ({"run_s": "", "peak_bytes": ""}, "| - | 0.50 | - |"),
        ({"arm": "optimized"}, "| random optimized |"),
        (
            {"library": "jumanji", "reason": "it starts elsewhere"},
            "- jumanji, cartpole-control: it",
        ),
    ],
    ids=["no interval", "does not apply", "a configuration", "a remark"],
)
def test_a_row_says_what_a_reader_must_know(changed, shown, tmp_path, capsys):
    assert shown in cite(write(tmp_path / "run.csv", MEASURED | changed), capsys)


def test_what_was_not_measured_is_no_figure_and_is_named(tmp_path, capsys):
    failed = MEASURED | {"status": "failed", "num_envs": 77}
    text = cite(write(tmp_path / "run.csv", MEASURED, failed), capsys)
    assert "| 77 |" not in text
    assert "- not measured: myriad, cartpole-control, 77 environments: failed" in text


def test_rows_of_two_machines_are_never_one_table(tmp_path, capsys):
    other = MEASURED | {"device_name": "Another"}
    text = cite(write(tmp_path / "run.csv", MEASURED, other), capsys)
    assert text.count("\n| suite |") == 2
    assert "Another, 2 cores" in text


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: b"\xff\xfe\x00", "can't be read"),
        (lambda text: b"a,b\n1,2\n", "is not a table of results: it lacks the column 'suite'"),
        (lambda text: text.splitlines()[0], "holds no row that was measured"),
        (lambda text: text.replace(b",10000,", b",many,"), "line 2: num_envs is 'many'"),
        (lambda text: text.replace(b",0.25,", b",nan,"), "line 2: run_s is 'nan'"),
        (lambda text: text.replace(b",0123456789abcdef-dirty", b""), "line 2"),
    ],
)
def test_a_file_that_is_damaged_is_refused_in_one_sentence(damage, reason, tmp_path, capsys):
    path = write(tmp_path / "run.csv", MEASURED)
    path.write_bytes(damage(path.read_bytes()))
    assert main(["cite", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert reason in said
    assert said.count("\n") == 1


def test_damaged_samples_give_no_command(tmp_path, capsys):
    path = write(tmp_path / "run.csv", MEASURED)
    (tmp_path / "run_samples.json").write_text("[" * 100_000)
    assert "Reproduce" not in cite(path, capsys)
