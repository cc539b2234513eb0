"""The gate on itself: rows are kept, a second call goes on, and tables say what the rows say."""

import csv
import functools

import pandas as pd
import pytest

from ci.validation import planted, selftest, selftest_runs
from ci.validation.planted import make_project
from ci.validation.selftest import Table, main, scatter
from gate_repository import make_repository
from perfgate import machine
from perfgate.config import find_rules, read_rules

SHARES = 0.02  # of the seconds that the benchmarks' names promise


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return make_repository(tmp_path_factory.mktemp("selftest"))


@pytest.fixture(autouse=True)
def _short(monkeypatch, repository):
    monkeypatch.chdir(repository.root)
    monkeypatch.setattr(
        selftest, "PLANTED", (4.0,)
    )  # the fixture's rules call nothing below 1.3 slower
    monkeypatch.setattr(selftest, "make_project", functools.partial(make_project, shares=SHARES))


def read(folder, name):
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.long
def test_every_run_is_a_row_and_a_second_call_measures_only_what_is_missing(tmp_path, monkeypatch):
    # Two of the benchmarks of the planted project; each starts two workers a pair, as all would.
    two = {name: planted.BENCHMARKS[name] for name in ("arithmetic_1ms", "copies_30ms")}
    for module in (planted, selftest):
        monkeypatch.setattr(module, "BENCHMARKS", two)
    ran = []
    gate = selftest_runs.run_gate
    monkeypatch.setattr(selftest_runs, "run_gate", lambda *a: ran.append(gate(*a)) or ran[-1])
    asked = ["--output", str(tmp_path), "--bench", "time_cached", "--live", "1"]
    # What a loaded machine says of itself is not this test's business.
    assert main([*asked, "--runs", "2"]) in (0, 1)
    names = ("selftest_itself", "selftest_itself_pairs", "selftest_live")
    itself, itself_pairs, live = (read(tmp_path, name) for name in names)
    assert [row["other_core"] for row in itself] == ["idle", "busy"]
    assert len(itself_pairs) == sum(int(row["pairs"]) * int(row["benchmarks"]) for row in itself)
    assert [row["verdict"] for row in live] == ["slower"] * len(two)
    assert min(float(row["ratio"]) for row in live) > 2
    assert [row["other_core"] for row in read(tmp_path, "noise_false_alarms")] == ["busy", "idle"]
    assert len(read(tmp_path, "noise_planted_live")) == len(two)

    # The first run's answer again: what is asked for is what counts here.
    monkeypatch.setattr(selftest_runs, "run_gate", lambda *a: ran.append(ran[0]) or ran[-1])
    num_ran = len(ran)
    main([*asked, "--runs", "3"])
    assert len(ran) == num_ran + 1
    assert read(tmp_path, "selftest_itself")[:2] == itself
    assert len(read(tmp_path, "selftest_itself")) == 3
    assert read(tmp_path, "selftest_live") == live


def test_false_alarms_fail(tmp_path, capsys):
    row = {"bench": "", "budget_s": 60.0, "cpu": machine.describe()["cpu"], "seconds": 2.0}
    row |= {"run": 1, "other_core": "idle", "exit_code": 1, "timestamp": "20261121T000000Z"}
    Table(tmp_path / "selftest_itself.csv").add([row])
    assert main(["--output", str(tmp_path), "--runs", "1", "--live", "0"]) == 1
    assert "exit 1" in capsys.readouterr().out
    (alarms,) = read(tmp_path, "noise_false_alarms")
    assert (alarms["other_core"], alarms["exit 1"], alarms["longest s"]) == ("idle", "1", "2.0")


def test_the_noise_of_a_benchmark_is_the_scatter_of_its_pairs(repository):
    rules = read_rules(*find_rules(repository.root))
    pairs = [
        {"benchmark": name, "other_core": core, "log_ratio": str(sign * size)}
        for name, size in (("quiet", 0.001), ("noisy", 0.1))
        for core, sign in (("idle", 1), ("idle", -1), ("busy", 1), ("busy", -1))
    ]
    noisy, quiet = scatter(pd.DataFrame(pairs), rules).to_dict("records")
    assert noisy["noise, idle (sd)"] == noisy["noise, busy (sd)"] == "14.14%"
    assert quiet["noise, busy (sd)"] == "0.14%"
    assert (noisy["pairs"], quiet["pairs"]) == (4, 4)
    assert 1 < float(quiet["smallest found"]) < float(noisy["smallest found"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--runs", "-1"], "must be a whole number of at least 0, but got '-1'"),
        (["--suite-config", "nowhere.json"], "there is no nowhere.json"),
    ],
)
def test_bad_input_is_one_sentence(arguments, reason, capsys, tmp_path):
    assert main([*arguments, "--output", str(tmp_path)]) == 2
    assert reason in capsys.readouterr().err
