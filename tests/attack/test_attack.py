"""The short form of the attack, and that it would see what it looks for."""

import pytest

from myriad.cli.arguments import COMMANDS
from tests.attack import cases, fuzz
from tests.attack.cases import Case, Outcome

NUMBERS = {"command line": 30, "file": 10, "settings": 10, "call": 30}


@pytest.mark.long
def test_whatever_is_typed_or_passed_the_user_reads_one_sentence_and_no_file_is_harmed():
    every = [draw(2, i) for kind, draw in fuzz.KINDS.items() for i in range(NUMBERS[kind])]
    outcomes = list(fuzz.attack(every))
    bad = [
        f"{each.ending}: {fuzz.repeated(each.case)}\n{each.said}"
        for each in outcomes
        if each.ending not in cases.GOOD
    ]
    assert len(outcomes) == len(every)
    assert bad == []


@pytest.mark.long
def test_tracebacks_deaths_and_lost_files_are_seen(monkeypatch):
    monkeypatch.setattr(fuzz, "INTERRUPT_S", 5.0)
    planted = {
        "1 / 0": cases.TRACEBACK,
        "Path('notes/precious.txt').write_text('mine')": cases.HARMED,
        "__import__('os').kill(__import__('os').getpid(), 9)": cases.KILLED,
        "__import__('time').sleep(100)": cases.INTERRUPTED,
        "myriad.make_env('cartpole', tau=-1)": cases.REFUSED,
        "myriad.make_env('cartpole')": cases.OK,
    }
    every = [Case("call", i, [expression]) for i, expression in enumerate(planted)]
    endings = {each.case.what[0]: each.ending for each in fuzz.attack(every)}
    assert endings == planted


def test_a_seed_and_a_number_give_the_same_case():
    for draw in fuzz.KINDS.values():
        cases_of_seed = [draw(3, i) for i in range(40)]
        assert cases_of_seed == [draw(3, i) for i in range(40)]
        assert cases_of_seed != [draw(4, i) for i in range(40)]


def test_the_table_counts_each_kind_by_its_ending():
    case = Case("call", 0, ["f()"])
    rows = cases.table([Outcome(case, cases.OK, ""), Outcome(case, cases.HANG, "")]).splitlines()
    counted = {row[:26].strip(): row[26:].split() for row in rows}
    assert counted[""] == ["call"]
    assert (counted["ok"], counted["hang"], counted["all"]) == (["1"], ["1"], ["2"])
    assert counted["traceback"] == ["0"]


def test_every_command_and_every_public_function_is_attacked():
    commands = {fuzz.command_line(0, i).what[0] for i in range(400)}
    assert commands >= COMMANDS.keys()
    called = {fuzz.call(0, i).what[0].partition("(")[0] for i in range(1000)}
    assert {"myriad.create_config", "myriad.Rollout", "myriad.make_key", "record"} <= called
