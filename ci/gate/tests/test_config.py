"""gate.toml and accepted.toml: what they refuse, and the verdicts and budgets that follow."""

import os
from dataclasses import replace
from datetime import date

import pytest

from perfgate.budgets import check_budgets
from perfgate.config import (
    DEFAULT_FILE,
    Accepted,
    Budget,
    MetricRule,
    Rules,
    Verdicts,
    find_rules,
    read_rules,
)
from perfgate.errors import UsageError
from perfgate.hlo import Program
from perfgate.metrics import compare_metrics
from perfgate.process.protocol import FirstRun
from perfgate.report.markdown import markdown
from perfgate.report.result import Result
from perfgate.rows import Benchmark, Outcome, Row, SideRun
from perfgate.source.asv_config import read_config
from perfgate.stats.evidence import HOST, HOT, Evidence, Limits
from perfgate.verdict import judge

ROW = "suite.Chunk.time_chunk('small')"


def read(folder, text="", name="gate.toml"):
    if text is None:  # a pipe, to which nobody will ever write
        os.mkfifo(folder / name)
    else:
        (folder / name).write_text(text)
    if name == "asv.conf.json":
        return read_config(folder / name, folder)
    return read_rules(folder / "gate.toml", folder / "accepted.toml")


def timed(*log_ratios, base=None, head=None, first=(0.1, 0.2), **calls):
    """Return a row that was timed, with these metrics of its program and these first calls."""
    evidence = Evidence(num_tests=4)
    for value in log_ratios:
        evidence.add(value)
        evidence.weigh(0.003)
    return Row(
        Benchmark(ROW, "suite.Chunk.time_chunk", 0, "time", 60.0),
        base=SideRun(FirstRun(first[0], None, calls), Program("1", base or {})),
        head=SideRun(FirstRun(first[1], None, calls), Program("2", head or {})),
        evidence=evidence,
    )


def judged(row, rules, *, timing=True):
    return judge(replace(row, changes=compare_metrics(row, rules)), rules, timing=timing)


def accepted(metric, ratio, year=2999):
    return Accepted(ROW, metric, ratio, "why", date(year, 1, 1))


def result(*rows, budgets=()):
    return Result(rows, budgets, "a" * 40, "b" * 40, [], "one")


SAME = (0.0, 0.001)
FASTER = (-0.3, -0.301)
NOISY = (0.3, -0.3, 0.25, -0.2)
WIDE = (0.05, -0.05)  # neither slower nor surely below 1.04, and yet below 1.10
JUST_SLOWER = (0.02, 0.021)  # surely slower, and yet let pass
SLOWER = (0.3, 0.301, 0.299, 0.3, 0.3)  # two to suspect it and three to confirm it


DEFAULTS = read_rules(DEFAULT_FILE, DEFAULT_FILE.with_name("accepted.toml"))


def test_the_default_rules_hold_metrics_and_no_promise_of_anybody():
    assert replace(DEFAULTS, metric=()) == Rules() != DEFAULTS


METRIC = "[[metric]]\nname = 'x'\nworse = 'more'\n"
SLOWDOWN = "[[slowdown]]\nbenchmark = 'x'\n"
ENTRY = "[[accepted]]\nbenchmark = 'x'\nmetric = 'time'\nratio = 2\nreason = 'y'\nexpires = "
MISTAKES = {
    "gate.toml": [
        (None, "is not a regular file"),
        ("verdict", "is not valid TOML"),
        ("[verdict]\nfail_ratio = 1.1", "verdict.fail_ratio: Unexpected keyword argument"),
        ("[timing]\nbudget_s = -1", "budget_s: Input should be greater than or equal to 0, but"),
        ("[[metric]]\nname = 'time'\nworse = 'more'", "use [[slowdown]] instead of [[metric]]"),
        (f"{METRIC}benchmark = '('", "is not a valid regular expression"),
        (f"{SLOWDOWN}fail_ratio = 1.2\npass_ratio = 1.1", "slowdown.0 needs"),
        (f"{SLOWDOWN}fail_ratio = 1.1", "1.1, 1.04 and 1.1"),
        (f"{ENTRY}2999-01-31", "accepted regressions belong in accepted.toml"),
    ],
    "accepted.toml": [
        (f"{ENTRY}'2030-01-31'", "valid date"),
    ],
    "asv.conf.json": [
        (None, "is not a regular file"),
        ("{", "is not a valid configuration of asv"),
        ('{"benchmark_dir": 3}', "benchmark_dir can't be 3"),
        ('{"default_benchmark_timeout": NaN}', "default_benchmark_timeout can't be nan"),
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [(name, *each) for name, mistakes in MISTAKES.items() for each in mistakes],
)
def test_a_mistake_in_a_file_gets_one_sentence_that_names_it(tmp_path, name, text, said):
    if name == "accepted.toml":
        (tmp_path / "gate.toml").touch()
    with pytest.raises(UsageError, match=rf"{name}[^\n]+\.$") as caught:
        read(tmp_path, text, name)
    assert said in str(caught.value)


def test_the_rules_of_the_repository_come_before_ours(tmp_path):
    assert find_rules(tmp_path) == (DEFAULT_FILE, tmp_path / "accepted.toml")
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "gate.toml").touch()
    assert find_rules(tmp_path) == (tmp_path / "ci/gate.toml", tmp_path / "ci/accepted.toml")


@pytest.mark.parametrize(
    ("worse", "expected"),
    [
        ("more", "better same worse"),
        ("less", "worse same better"),
        ("either", "worse same worse"),
        ("never", "same same same"),
        ("undeclared", "changed same changed"),
    ],
)
def test_a_metric_is_compared_in_its_direction_and_within_its_tolerance(worse, expected):
    for rule in (MetricRule("m", worse, tolerance=0.1), MetricRule("m", worse, at_least=10)):
        assert " ".join(rule.compare(100, head) for head in (89, 110, 111)) == expected


def test_the_first_rule_that_fits_counts_and_others_keep_the_default(tmp_path):
    own = "[[metric]]\nname='m'\nworse='less'\nbenchmark='^suite'\n"
    more = "[[metric]]\nname='m'\nworse='more'\n[[cores]]\nbenchmark='x'\ncores=2"
    rules = read(tmp_path, own + more)
    assert [rules.rule_of("m", name).worse for name in (ROW, "other")] == ["less", "more"]
    assert rules.rule_of("unknown", ROW).worse == "never"
    assert rules.rule_of("peakmemory", ROW).worse == "more"
    assert (rules.cores_of("x"), rules.cores_of(ROW)) == (2, 1)
    assert read(tmp_path, "metric = []").rule_of("track", ROW).worse == "never"
    rules = read(tmp_path, "[[metric]]\nname = 'track'\nbenchmark = 'odd'\nworse = 'less'")
    assert tracked("track_odd", 1, 2, "seconds", rules).verdict == "better"  # whatever its unit
    assert tracked("track_even", 1, 2, "seconds", rules).verdict == "worse"


def test_benchmarks_may_have_limits_of_their_own(tmp_path):
    noisy = "[[slowdown]]\nbenchmark = 'noisy'\nfail_ratio = 1.1\npass_ratio = 1.3\n"
    still = "[[slowdown]]\nbenchmark = 'still'\nclass = 'hot'\ncap = 1.06\n"
    rules = read(tmp_path, noisy + still)
    assert rules.limits_of("time_noisy", is_hot=True) == Limits(1.1, 1.3, 1.3)
    assert rules.limits_of("time_noisy", is_hot=False) == Limits(1.1, 1.3, 1.3)
    assert rules.limits_of("time_still", is_hot=True) == Limits(1.01, 1.04, 1.06)
    assert [rules.limits_of(ROW, is_hot=is_hot) for is_hot in (True, False)] == [HOT, HOST]
    assert rules.is_hot("time_still", seems=False)
    assert [rules.is_hot("time_noisy", seems=seems) for seems in (True, False)] == [True, False]


RATES = (
    "1/s, reads/s, steps / s, reads/s (mean), MB/s, GiB/sec, it/second, req/min, pages/hour, s/s, "
    "steps per second, images per sec, requests/s/core, Hz, kHz, MHz, fps, FPS, qps, Mbps, s^-1"
)
COSTS = (
    "s, S, sec, secs, second, seconds, Seconds, ms, msecs, us, \N{MICRO SIGN}s, ns, nanoseconds, "
    "millis, microseconds, min, minutes, h, hours, days, s/step, ms per call, seconds per epoch, "
    "B, b, bytes, byte, Bytes, kB, KB, KiB, MB, MiB, GB, TB, megabytes, bytes/row, MB per call"
)
UNTOLD = (
    "units, steps, samples, score, %, x, bits, ops, reads, classes, errors, sharpe, seasons, "
    "min reward, persons, basis points, mbox, baskets, hosts, dB, per step, items/step"
)
NAMES = {"track_x_per_s": "less", "track_x_s": "more", "track_x_bytes": "more"}
NAMES |= {"track_x": "undeclared", "track_classes": "undeclared", "track_x_ms": "undeclared"}


def tracked(name, base, head, unit="", rules=DEFAULTS):
    runs = [SideRun(FirstRun(value=float(value))) for value in (base, head)]
    row = Row(Benchmark(name, name, None, "track", 1.0, unit), base=runs[0], head=runs[1])
    return judged(row, rules)


@pytest.mark.parametrize("parameters", ["", "('small', 8)"])
def test_the_unit_of_a_tracked_value_says_which_way_is_worse_and_else_its_name(parameters):
    words = {"more": ("worse", "better"), "less": ("better", "worse")}
    units = {"less": RATES, "more": COSTS, "undeclared": UNTOLD}
    expected = {unit: worse for worse, each in units.items() for unit in each.split(", ")}
    for name, of_name in NAMES.items():
        for unit, worse in (expected | {"": of_name, "unit": of_name}).items():
            row = f"suite.{name}{parameters}"
            found = tuple(tracked(row, 100, head, unit).verdict for head in (130, 70))
            assert found == words.get(worse, ("undecided", "undecided")), (name, unit)


def test_a_tracked_value_of_undeclared_direction_is_asked_for_and_never_guessed():
    asked = tracked("s.track_score", 1, 2)
    assert (asked.verdict, asked.outcome) == ("undecided", Outcome.UNDECIDED)
    assert 'worse = "more" or "less"' in asked.reasons[0]
    assert tracked("s.track_score", 1, 1).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("pairs", "verdict", "outcomes"),  # as it is, where every doubt stops, and where none does
    [
        (SAME, "not slower", "passed passed passed"),
        (FASTER, "faster", "passed passed passed"),
        (SLOWER, "slower", "failed failed failed"),
        (SLOWER[:4], "undecided", "undecided undecided warned"),
        ((), "undecided", "undecided undecided warned"),
        ((0.0,), "undecided", "undecided undecided warned"),
        (NOISY, "undecided", "undecided undecided warned"),
        (WIDE, "not shown slower", "passed undecided passed"),
    ],
)
def test_timing_gives_each_verdict(pairs, verdict, outcomes):
    row = judged(timed(*pairs), Rules())
    others = (Rules(verdict=Verdicts(undecided=each)) for each in ("stop", "warn"))
    found = [row, *(judged(timed(*pairs), each) for each in others)]
    assert row.verdict == verdict
    assert " ".join(each.outcome.name.lower() for each in found) == outcomes


def memory(argument, alias, output=1e6, temp=1e6):
    sizes = {"argument_bytes": argument, "alias_bytes": alias, "output_bytes": output}
    peak = argument + output + temp - alias
    undonated = argument - alias
    return {**sizes, "temp_bytes": temp, "peak_bytes": peak, "undonated_bytes": undonated}


COMPILED = {"compilations": 1.0, "compile_s": 1.0}
COUNTS = [
    # a count fails only if the time that it stands for grew
    ({"copies": 10_000.0}, {"copies": 12_000.0}, SAME, "not slower"),
    ({"copies": 10_000.0}, {"copies": 12_000.0}, JUST_SLOWER, "worse"),
    ({"copies": 10_000.0}, {"copies": 12_000.0}, SLOWER, "slower"),
    ({"copies": 10_000.0}, {"copies": 12_000.0}, SAME[:1], "undecided"),  # its time is not known
    # if that is undecided, from its sure ratio on
    ({"fusions": 40.0}, {"fusions": 43.0}, (), "undecided"),
    ({"fusions": 40.0}, {"fusions": 80.0}, (), "worse"),
    ({"host_callbacks": 0.0}, {"host_callbacks": 1.0}, (), "worse"),
    # memory is a cost of its own, judged by what a program needs in all
    ({"peak_bytes": 10_000.0}, {"peak_bytes": 12_000.0}, (), "worse"),
    (memory(1e6, 1e6), memory(1e6, 1e6, temp=1.1e6), FASTER, "worse"),
    (memory(1e6, 1e6), memory(5e5, 5e5, output=5e5), SAME, "not slower"),  # less is donated
    (memory(1e6, 1e6), memory(1e6, 9e5), SAME, "worse"),  # a tenth is no longer donated
    (memory(1e6, 1e6), memory(1.1e6, 1.1e6, 1.1e6, 8e5), SAME, "not slower"),  # less in all
    # a first call that compiles more programs is worse if it takes longer
    (COMPILED, {"compilations": 4.0, "compile_s": 1.1}, SAME, "not slower"),
    (COMPILED, {"compilations": 4.0, "compile_s": 1.3}, SAME, "worse"),
]


@pytest.mark.parametrize(("base", "head", "pairs", "verdict"), COUNTS)
def test_a_number_fails_a_row_only_if_its_cost_grew(base, head, pairs, verdict):
    row = judged(timed(*pairs, base=base, head=head), DEFAULTS)
    assert row.verdict == verdict
    changed = {**base, **head} != base
    is_said = changed and verdict in ("worse", "slower", "undecided")
    assert (" -> " in " ".join(row.reasons)) is is_said
    if len(base) == 1:
        assert judged(timed(base=base, head=head), DEFAULTS, timing=False).verdict == "worse"


def test_who_accepts_a_slowdown_up_to_a_ratio_accepts_what_stands_for_it():
    more = {"base": {"copies": 1.0}, "head": {"copies": 9.0}}
    for ratio, outcome in ((1.4, Outcome.WARNED), (1.1, Outcome.FAILED)):
        rules = replace(DEFAULTS, accepted=(accepted("time", ratio),))
        assert judged(timed(*SLOWER, **more), rules).outcome is outcome
        assert judged(timed(**more), rules, timing=False).outcome is Outcome.WARNED


@pytest.mark.parametrize(
    ("worse", "ratio", "base", "heads"),  # the last value that is accepted, and one beyond it
    [
        ("more", 2.0, 1.0, (2.0, 3.0)),
        ("more", 2.0, 0.0, (2.0, 3.0)),  # of nothing there is no ratio: it is head's value
        ("less", 0.5, 2.0, (1.0, 0.0)),
    ],
)
def test_acceptance_ends_with_its_ratio_and_its_day(worse, ratio, base, heads):
    def outcome(head, year):
        entry = accepted("copies", ratio, year)
        rules = Rules(metric=(MetricRule("copies", worse),), accepted=(entry,))
        return judged(timed(*SAME, base={"copies": base}, head={"copies": head}), rules).outcome

    found = [outcome(head, year) for year in (2999, 2020) for head in heads]
    assert found == [Outcome.WARNED, *[Outcome.FAILED] * 3]


def test_a_regression_weighs_more_than_what_could_not_be_measured_and_that_more_than_a_pass():
    failed, passed = judged(timed(*SLOWER), Rules()), judged(timed(*SAME), Rules())
    broken = judged(timed().with_problems({"head": "why"}), Rules())
    assert broken.outcome is Outcome.UNMEASURED
    assert result(passed).exit_code == 0
    assert result(passed, broken, failed).exit_code == 1
    assert result(passed, broken).exit_code == result().exit_code == 3


def test_a_report_counts_budgets_as_what_they_are():
    kept, missed = (Budget("Chunk", "seconds", "s", ceiling=most) for most in (1.0, 0.1))
    unknown = Budget("nothing", "seconds", "s", ceiling=1.0)
    entries = (accepted("budget seconds", 1.0),)
    passed = "PASSED: nothing slower than 1.01"
    for rules, code, headline in (
        (Rules(budget=(kept,)), 0, passed),
        (Rules(budget=(missed, kept)), 1, "FAILED: 1 budget missed"),
        (Rules(budget=(missed,), accepted=entries), 0, passed),
        (Rules(budget=(unknown,)), 3, "COULD NOT TELL: 1 budget could not be checked"),
    ):
        row = judged(timed(*SAME), rules)
        found = check_budgets([row.row], rules)
        whole = result(row, budgets=found)
        assert (whole.exit_code, whole.headline) == (code, f"{headline}; 1 benchmark in all")
        assert all(each.word in markdown(whole) for each in found)


def test_budgets_are_kept_missed_or_not_measured():
    fast = timed()
    peer = Benchmark("peer", "peer", None, "time", 60.0)
    slow = replace(fast, benchmark=peer, timed_s={"head": (1.0, 1.2, 1.1)})
    ratio = Budget("Chunk", "ratio", "times", floor=5, over="peer")
    budgets = (
        Budget("Chunk", "seconds", "s", ceiling=0.3),
        Budget("Chunk", "rate", "steps/s", floor=1000, work=100),
        ratio,
        Budget("Chunk", "temp_bytes", "bytes", ceiling=10),
        Budget("nothing", "seconds", "s", ceiling=10),
    )
    found = check_budgets([fast, slow], Rules(budget=budgets))
    assert [(each.figure and round(each.figure, 3), each.word) for each in found] == [
        (0.2, "kept"),
        (500.0, "missed"),
        (5.5, "kept"),
        (None, "not measured"),
        (None, "no such benchmark"),
    ]
    part = check_budgets([fast], Rules(budget=(ratio, budgets[-1])), is_part=True)
    assert [each.word for each in part] == ["not checked, since peer was not run"]
