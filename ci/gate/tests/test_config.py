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
    Slowdown,
    Verdicts,
    find_rules,
    read_rules,
)
from perfgate.errors import UsageError
from perfgate.hlo import Program
from perfgate.metrics import compare_metrics
from perfgate.process.protocol import FirstRun
from perfgate.report.markdown import markdown, measured
from perfgate.report.result import Result
from perfgate.rows import Benchmark, Outcome, Row, SideRun
from perfgate.source.asv_config import read_config
from perfgate.stats.evidence import HOST, HOT, Evidence, Limits
from perfgate.verdict import judge

ROW = "suite.Chunk.time_chunk('small')"


def read(folder, text):
    (folder / "gate.toml").write_text(text)
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


SAME = (0.0, 0.001)
FASTER = (-0.3, -0.301)
NOISY = (0.3, -0.3, 0.25, -0.2)
WIDE = (0.05, -0.05)  # neither slower nor surely below 1.04, and yet below 1.10
SLOWER = (0.3, 0.301, 0.299, 0.3, 0.3)  # two to suspect it and three to confirm it


DEFAULTS = read_rules(DEFAULT_FILE, DEFAULT_FILE.with_name("accepted.toml"))


def test_the_default_rules_are_valid_and_hold_no_promise_of_anybody():
    assert replace(DEFAULTS, metric=()) == Rules()
    assert len(DEFAULTS.metric) > 20


METRIC = "[[metric]]\nname = 'x'\nworse = 'more'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verdict", "is not valid TOML"),
        ("[verdict]\nfail_ration = 1", "verdict.fail_ration: Unexpected keyword argument"),
        ("[verdict]\nfail_ratio = 1.1", "verdict.fail_ratio: Unexpected keyword argument"),
        ("[verdict]\nlooks = [6, 4]", "verdict.looks: Unexpected keyword argument"),
        ("[timing]\nshared_s = 0.1", "timing.shared_s: Unexpected keyword argument"),
        ("[timing]\npair_s = true", "valid number, but got True."),
        ("[timing]\nbudget_s = -1", "budget_s: Input should be greater than or equal to 0, but"),
        (
            '[[metric]]\nname = "fusions"\nworse = "more"\nsure_ratio = 0.5',
            "sure_ratio: Input should be greater than 1, but",
        ),
        ("[[metric]]\nname = 'x'", "metric.0.worse: Field required"),
        ("[[metric]]\nname = 'time'\nworse = 'more'", "use [[slowdown]] instead of [[metric]]"),
        (f"{METRIC}benchmark = '('", "is not a valid regular expression"),
        ("[[slowdown]]\nbenchmark = 'x'\nfail_ratio = 1.2\npass_ratio = 1.1", "slowdown.0 needs"),
        ("[[slowdown]]\nbenchmark = 'x'\nfail_ratio = 1.1", "1.1, 1.04 and 1.1"),
        ("[[slowdown]]\nbenchmark = 'x'\nclass = 'cold'", "slowdown.0.class: Input should be"),
        ("[[accepted]]\nbenchmark = 'x'", "accepted regressions belong in accepted.toml"),
    ],
)
def test_a_mistake_in_the_rules_gets_one_sentence(tmp_path, text, expected):
    with pytest.raises(UsageError, match=r"gate\.toml") as caught:
        read(tmp_path, text)
    assert expected in str(caught.value)


def test_a_pipe_in_place_of_a_file_is_refused(tmp_path):
    for name in ("gate.toml", "asv.conf.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match=r"gate\.toml"):
        read_rules(tmp_path / "gate.toml", tmp_path / "accepted.toml")
    with pytest.raises(UsageError, match=r"asv\.conf\.json"):
        read_config(tmp_path / "asv.conf.json", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"benchmark_dir": 3}',
        '{"matrix": {"req": [1]}}',
        '{"default_benchmark_timeout": "x"}',
        '{"default_benchmark_timeout": NaN}',
    ],
)
def test_a_mistake_in_asvs_configuration_gets_one_sentence(tmp_path, text):
    file = tmp_path / "asv.conf.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"^asv\.conf\.json[^\n]+\.$"):
        read_config(file, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[[accepted]]\nbenchmark = 'x'\nmetric = 'time'\nratio = 2\nreason = 'y'\n"
            f"expires = {expires}\n"
            for expires in ("2030-01-31T00:00:00", "'2030-01-31'", "1")
        ),
        "[[acepted]]\nbenchmark = 'x'\n",
    ],
)
def test_a_mistake_in_what_is_accepted_gets_one_sentence(tmp_path, text):
    (tmp_path / "accepted.toml").write_text(text)
    with pytest.raises(UsageError, match=r"accepted\.toml: .*(valid date|acepted)"):
        read(tmp_path, "")


def test_the_rules_of_the_repository_come_before_ours(tmp_path):
    assert find_rules(tmp_path) == (DEFAULT_FILE, tmp_path / "accepted.toml")
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "gate.toml").touch()
    assert find_rules(tmp_path) == (
        tmp_path / "ci" / "gate.toml",
        tmp_path / "ci" / "accepted.toml",
    )


@pytest.mark.parametrize(
    ("worse", "head", "expected"),
    [
        ("more", 110, "same"),
        ("more", 111, "worse"),
        ("more", 89, "better"),
        ("less", 111, "better"),
        ("less", 89, "worse"),
        ("either", 89, "worse"),
        ("never", 1000, "same"),
        ("undeclared", 110, "same"),
        ("undeclared", 111, "changed"),
        ("undeclared", 89, "changed"),
    ],
)
def test_a_metric_is_compared_in_its_direction_and_within_its_tolerance(worse, head, expected):
    assert MetricRule("m", worse, tolerance=0.1).compare(100, head) == expected
    assert MetricRule("m", worse, at_least=10).compare(100, head) == expected


def test_the_first_rule_that_fits_counts_and_others_keep_the_default(tmp_path):
    own = "[[metric]]\nname='m'\nworse='less'\nbenchmark='^suite'\n"
    more = "[[metric]]\nname='m'\nworse='more'\n[[cores]]\nbenchmark='x'\ncores=2"
    rules = read(tmp_path, own + more)
    assert [rules.rule_of("m", name).worse for name in (ROW, "other")] == ["less", "more"]
    assert rules.rule_of("unknown", ROW).worse == "never"
    assert rules.rule_of("peakmemory", ROW).worse == "more"
    assert (rules.cores_of("x"), rules.cores_of(ROW)) == (2, 1)
    assert read(tmp_path, "metric = []").rule_of("track", ROW).worse == "never"


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
DIRECTIONS = [
    *(
        (name, unit, worse)
        for units, worse in ((RATES, "less"), (COSTS, "more"), (UNTOLD, "undeclared"))
        for unit in units.split(", ")
        for name in NAMES
    ),
    *((name, unit, worse) for name, worse in NAMES.items() for unit in ("", "unit")),
]


def tracked(name, base, head, unit="", rules=DEFAULTS):
    runs = [SideRun(FirstRun(value=float(value))) for value in (base, head)]
    row = Row(Benchmark(name, name, None, "track", 1.0, unit), base=runs[0], head=runs[1])
    return judged(row, rules)


@pytest.mark.parametrize("parameters", ["", "('small', 8)"])
def test_the_unit_of_a_tracked_value_says_which_way_is_worse_and_else_its_name(parameters):
    words = {"more": ("worse", "better"), "less": ("better", "worse")}
    for name, unit, worse in DIRECTIONS:
        row = f"suite.{name}{parameters}"
        expected = words.get(worse, ("undecided", "undecided"))
        found = tuple(tracked(row, 100, head, unit).verdict for head in (130, 70))
        assert found == expected, (name, unit)


def test_a_rule_of_the_repository_wins_over_the_unit(tmp_path):
    rules = read(tmp_path, "[[metric]]\nname = 'track'\nbenchmark = 'odd'\nworse = 'less'")
    assert tracked("track_odd", 1, 2, "seconds", rules).verdict == "better"
    assert tracked("track_even", 1, 2, "seconds", rules).verdict == "worse"


@pytest.mark.parametrize(
    ("unit", "head", "shown"),
    [
        ("reads/s", 91, "100 -> 91 reads/s (0.91 times, within 10%)"),
        ("reads/s", 89, "100 -> 89 reads/s (0.89 times)"),
        ("s", 124, "100 -> 124 s (1.24 times, within 25%)"),
        ("s", 50, "100 -> 50 s (0.5 times)"),
        ("MB", 101, "100 -> 101 MB (1.01 times, within 1%)"),
        ("points", 99, "100 -> 99 points (0.99 times, within 1%)"),
        ("s", 100, "100 -> 100 s (1 times)"),
    ],
)
def test_a_tracked_value_that_passes_shows_the_tolerance_that_it_passed_by(unit, head, shown):
    assert measured(tracked("track_it", 100, head, unit).row) == shown


def test_a_small_tracked_time_has_no_floor_by_default_and_may_get_one(tmp_path):
    floor = "[[metric]]\nname = 'track'\nworse = 'more'\ntolerance = 0.25\nat_least = 0.5"
    slow = tracked("track_it", 0.1, 0.2, "s", read(tmp_path, floor))
    assert slow.verdict == "same"
    assert measured(slow.row) == "0.1 -> 0.2 s (2 times, within 500%)"
    assert tracked("track_it", 0.1, 0.2, "s").verdict == "worse"


def test_a_tracked_value_of_undeclared_direction_is_asked_for_and_never_guessed(tmp_path):
    def verdict(text, head):
        return tracked("s.track_score", 1, head, rules=read(tmp_path, text))

    asked = verdict("", 2.0)
    assert (asked.verdict, asked.outcome) == ("undecided", Outcome.UNDECIDED)
    assert 'worse = "more" or "less"' in asked.reasons[0]
    assert verdict("", 1.0).outcome is Outcome.PASSED
    declared = "[[metric]]\nname = 'track'\nworse = '{}'"
    assert verdict(declared.format("more"), 2.0).outcome is Outcome.FAILED
    assert verdict(declared.format("less"), 2.0).outcome is Outcome.PASSED


@pytest.mark.parametrize(("base", "head", "said"), [(0, 0, True), (0, 1, False), (1, 1, False)])
def test_a_tracked_value_that_is_0_everywhere_is_said_to_show_nothing(base, head, said):
    row = tracked("track_it", base, head)
    report = markdown(Result([row], [], DEFAULTS, "a" * 40, "b" * 40, [], "one"))
    assert (
        "- tracked 0 on both sides in every run, so a change would not show (1)" in report
    ) is said


@pytest.mark.parametrize(
    ("pairs", "verdict", "outcome"),
    [
        (SAME, "not slower", Outcome.PASSED),
        (FASTER, "faster", Outcome.PASSED),
        (SLOWER, "slower", Outcome.FAILED),
        (SLOWER[:4], "undecided", Outcome.UNDECIDED),
        ((), "undecided", Outcome.UNDECIDED),
        ((0.0,), "undecided", Outcome.UNDECIDED),
        (NOISY, "undecided", Outcome.UNDECIDED),
        (WIDE, "not shown slower", Outcome.PASSED),
    ],
)
def test_timing_gives_each_verdict(pairs, verdict, outcome):
    row = judged(timed(*pairs), Rules())
    assert (row.verdict, row.outcome) == (verdict, outcome)
    strict = judged(timed(*pairs), Rules(verdict=Verdicts(undecided="stop"))).outcome
    assert strict is (Outcome.UNDECIDED if pairs == WIDE else outcome)
    lenient = judged(timed(*pairs), Rules(verdict=Verdicts(undecided="warn"))).outcome
    assert lenient is (Outcome.WARNED if outcome is Outcome.UNDECIDED else outcome)


def test_a_metric_that_got_worse_fails_a_row_whose_time_passes():
    rules = replace(DEFAULTS, metric=(MetricRule("copies", "more"), *DEFAULTS.metric))
    row = judged(timed(*SAME, base={"copies": 1.0}, head={"copies": 2.0}), rules)
    assert (row.verdict, row.outcome) == ("worse", Outcome.FAILED)
    assert list(row.reasons) == ["buffers are copied that were not copied before: 1 -> 2 (2 times)"]


@pytest.mark.parametrize(
    ("head", "compile_s", "verdict"),
    [(3, 1.0, "not slower"), (4, 1.1, "not slower"), (4, 1.3, "worse")],
)
def test_a_first_call_that_compiles_more_programs_is_worse_if_it_takes_longer(
    head, compile_s, verdict
):
    row = timed(*SAME, compilations=1.0, compile_s=1.0)
    more = {"compilations": float(head), "compile_s": compile_s}
    compiled = replace(row.head, ran=FirstRun(0.2, numbers=more))
    assert judged(replace(row, head=compiled), DEFAULTS).verdict == verdict


JUST_SLOWER = (0.02, 0.021)  # surely slower, and yet let pass


@pytest.mark.parametrize(
    ("metric", "pairs", "verdict"),
    [
        ("copies", SAME, "not slower"),
        ("host_callbacks", FASTER, "faster"),
        ("instructions", SAME, "not slower"),
        ("copies", JUST_SLOWER, "worse"),
        ("copies", SLOWER, "slower"),
        ("copies", SAME[:1], "undecided"),  # nothing is known of its time yet
        ("copies", WIDE, "not shown slower"),
        ("copies", (), "undecided"),
        ("peak_bytes", (), "worse"),  # memory is a cost of its own
        ("peak_bytes", FASTER, "worse"),
    ],
)
def test_a_count_fails_only_if_the_time_it_stands_for_grew(metric, pairs, verdict):
    more = {"base": {metric: 10_000.0}, "head": {metric: 12_000.0}}
    row = judged(timed(*pairs, **more), DEFAULTS)
    assert row.verdict == verdict
    is_said = verdict in ("worse", "slower", "undecided")
    assert ("10,000 -> 12,000" in " ".join(row.reasons)) is is_said
    assert judged(timed(**more), DEFAULTS, timing=False).verdict == "worse"


@pytest.mark.parametrize(
    ("metric", "base", "head", "verdict"),
    [
        ("fusions", 40, 43, "undecided"),
        ("fusions", 40, 80, "worse"),  # no timing is needed to see that
        ("host_callbacks", 0, 1, "worse"),
        ("copies", 1, 3, "undecided"),  # small numbers double easily
    ],
)
def test_a_count_whose_time_is_undecided_fails_from_its_sure_ratio_on(metric, base, head, verdict):
    row = timed(base={metric: float(base)}, head={metric: float(head)})
    assert judged(row, DEFAULTS).verdict == verdict
    assert judged(row, DEFAULTS, timing=False).verdict == "worse"


@pytest.mark.parametrize(
    ("word", "outcome", "code"),
    [
        ("suspected", Outcome.UNDECIDED, 3),
        ("stop", Outcome.UNDECIDED, 3),
        ("warn", Outcome.WARNED, 0),
    ],
)
def test_a_count_that_grew_makes_an_undecided_row_look_worse(word, outcome, code):
    rules = replace(DEFAULTS, verdict=Verdicts(undecided=word))
    row = judged(timed(base={"fusions": 40.0}, head={"fusions": 43.0}), rules)
    assert row.outcome is outcome
    counted, untimed = row.reasons
    assert counted.endswith("40 -> 43 (1.07 times); only its time tells whether that is worse")
    assert untimed.endswith("run it alone with --bench, or give more time with --budget")
    assert Result([row], [], rules, "a" * 40, "b" * 40, [], "one").exit_code == code


def memory(argument, alias, output=1e6, temp=1e6):
    sizes = {"argument_bytes": argument, "alias_bytes": alias, "output_bytes": output}
    peak = argument + output + temp - alias
    undonated = argument - alias
    return {**sizes, "temp_bytes": temp, "peak_bytes": peak, "undonated_bytes": undonated}


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        (memory(1e6, 1e6), "not slower"),
        (memory(5e5, 5e5, output=5e5), "not slower"),  # a smaller state donates less
        (memory(1e6, 9e5), "worse"),  # a tenth is no longer donated
        (memory(1e6, 0.0), "worse"),
        (memory(1.1e6, 1.1e6, output=1.1e6, temp=8e5), "not slower"),  # more here, less in all
        (memory(1e6, 1e6, temp=1.1e6), "worse"),
    ],
)
def test_memory_is_judged_by_what_a_program_needs_in_all(head, verdict):
    row = timed(*SAME, base=memory(1e6, 1e6), head=head)
    assert judged(row, DEFAULTS).verdict == verdict


def test_limits_of_a_benchmark_hold_for_what_stands_for_its_time():
    more = {"base": {"instructions": 100.0}, "head": {"instructions": 140.0}}
    slowdown = Slowdown("Chunk", fail_ratio=1.5, pass_ratio=2.0)
    lenient = replace(DEFAULTS, slowdown=(slowdown,))
    assert judged(timed(**more), DEFAULTS, timing=False).verdict == "worse"
    assert judged(timed(**more), lenient, timing=False).outcome is Outcome.NEUTRAL


def test_who_accepts_a_cost_accepts_what_stands_for_it():
    more = {"base": {"copies": 1.0}, "head": {"copies": 9.0}}
    entry = Accepted(ROW, "time", 1.4, "why", date(2999, 1, 1))
    accepted = replace(DEFAULTS, accepted=(entry,))
    assert judged(timed(*SLOWER, **more), accepted).outcome is Outcome.WARNED
    assert judged(timed(**more), accepted, timing=False).outcome is Outcome.WARNED
    assert judged(timed(*SLOWER, **more), DEFAULTS).outcome is Outcome.FAILED


def test_a_report_names_what_failed_a_row_each_cost_without_its_stand_ins():
    more = {
        "base": {"peak_bytes": 1e6, "temp_bytes": 1e6, "fusions": 40.0},
        "head": {"peak_bytes": 2e6, "temp_bytes": 2e6, "fusions": 43.0},
    }
    for pairs, timing, failed in (
        (SLOWER, True, ("time", "peak_bytes")),
        (SAME, True, ("peak_bytes",)),  # the time has not grown
        ((), True, ("peak_bytes",)),  # nobody knows about the time
        ((), False, ("fusions", "peak_bytes")),
    ):
        assert judged(timed(*pairs, **more), DEFAULTS, timing=timing).failed == failed
    assert judged(timed(*SAME), DEFAULTS).failed == ()


def test_acceptance_ends_with_its_ratio_and_its_day():
    def verdict(ratio, day):
        return judged(
            timed(*SLOWER), Rules(accepted=(Accepted(ROW, "time", ratio, "why", day),))
        ).verdict

    assert verdict(1.4, date(2999, 1, 1)) == "slower, accepted"
    assert verdict(1.1, date(2999, 1, 1)) == "slower"
    assert verdict(1.4, date(2020, 1, 1)) == "slower"


@pytest.mark.parametrize(
    ("worse", "ratio", "base", "head", "accepted"),
    [
        ("more", 2.0, 1.0, 2.0, True),
        ("more", 2.0, 1.0, 3.0, False),
        ("more", 2.0, 0.0, 2.0, True),  # of nothing there is no ratio: it is head's value
        ("more", 2.0, 0.0, 3.0, False),
        ("less", 0.5, 2.0, 1.0, True),
        ("less", 0.5, 2.0, 0.0, False),
    ],
)
def test_a_metric_is_accepted_as_far_as_the_entry_says(worse, ratio, base, head, accepted):
    rules = Rules(
        metric=(MetricRule("copies", worse),),
        accepted=(Accepted(ROW, "copies", ratio, "why", date(2999, 1, 1)),),
    )
    row = judged(timed(*SAME, base={"copies": base}, head={"copies": head}), rules)
    assert (row.outcome is Outcome.WARNED) is accepted
    assert (row.outcome is Outcome.FAILED) is not accepted


def test_a_regression_weighs_more_than_what_could_not_be_measured_and_that_more_than_a_pass():
    row = timed()
    failed, passed = judged(timed(*SLOWER), Rules()), judged(timed(*SAME), Rules())
    broken = judged(row.with_problems({"head": "why"}), Rules())
    assert broken.outcome is Outcome.UNMEASURED
    for rows, code in (
        ([passed], 0),
        ([passed, broken], 3),
        ([passed, broken, failed], 1),
        ([], 3),
    ):
        assert Result(rows, [], Rules(), "a" * 40, "b" * 40, [], "one").exit_code == code


def test_a_report_counts_budgets_as_what_they_are():
    kept, missed = (
        Budget("Chunk", "seconds", "s", ceiling=1.0),
        Budget("Chunk", "seconds", "s", ceiling=0.1),
    )
    unknown = Budget("nothing", "seconds", "s", ceiling=1.0)
    accepted = Accepted(ROW, "budget seconds", 1.0, "why", date(2999, 1, 1))
    for budgets, entries, code, headline in (
        ((kept,), (), 0, "PASSED: nothing slower than 1.01"),
        ((missed, kept), (), 1, "FAILED: 1 budget missed"),
        ((missed,), (accepted,), 0, "PASSED: nothing slower than 1.01"),
        ((unknown,), (), 3, "COULD NOT TELL: 1 budget could not be checked"),
    ):
        rules = Rules(budget=budgets, accepted=entries)
        row = judged(timed(*SAME), rules)
        found = check_budgets([row.row], rules)
        result = Result([row], found, rules, "a" * 40, "b" * 40, [], "one")
        assert (result.exit_code, result.headline) == (code, f"{headline}; 1 benchmark in all")
        assert all(word in markdown(result) for word in {each.word for each in result.budgets})


def test_budgets_are_kept_missed_or_not_measured():
    fast = timed()
    peer = Benchmark("peer", "peer", None, "time", 60.0)
    slow = replace(fast, benchmark=peer, timed_s={"head": (1.0, 1.2, 1.1)})
    found = check_budgets(
        [fast, slow],
        Rules(
            budget=(
                Budget("Chunk", "seconds", "s", ceiling=0.3),
                Budget("Chunk", "rate", "steps/s", floor=1000, work=100),
                Budget("Chunk", "ratio", "times", floor=5, over="peer"),
                Budget("Chunk", "temp_bytes", "bytes", ceiling=10),
                Budget("nothing", "seconds", "s", ceiling=10),
            )
        ),
    )
    assert [(each.figure and round(each.figure, 3), each.word) for each in found] == [
        (0.2, "kept"),
        (500.0, "missed"),
        (5.5, "kept"),
        (None, "not measured"),
        (None, "no such benchmark"),
    ]
