"""What an edited suite makes the base's code do is compared with what its own suite made it do."""

import pytest

BEFORE = """import smallsum

VALUES = smallsum.table(20_000)
MORE = smallsum.table(20_000)


class Prepared:
    def setup(self):
        self.values = [smallsum.table(1_000) for _ in range(50)][0]

    def time_prepared(self):
        smallsum.total(self.values)


class Sized:
    params = [1_000, 20_000]

    def time_sized(self, size):
        smallsum.total(VALUES[:size])


class Skipped:
    def setup(self):
        pass

    def time_skipped(self):
        pass
"""
FUNCTIONS = {
    "time_once": "smallsum.total(MORE)",
    "time_smaller": "smallsum.total(VALUES)",
    "mem_table": "return smallsum.table(1_002)",
    "track_rate_per_s": "return 100.0",
}
BEFORE += "".join(f"\n\ndef {name}():\n    {does}\n" for name, does in FUNCTIONS.items())
GUTTED = {
    "work.time_once": ("smallsum.total(MORE)", "smallsum.total(MORE)\n    MORE.clear()"),
    "work.mem_table": ("1_002", "10"),
    "work.track_rate_per_s": ("100.0", "300.0"),
}
HARMLESS = {
    "work.time_smaller": ("total(VALUES)", "total(VALUES[:15_000])"),
    "work.Prepared.time_prepared": (" for _ in range(50)][0]", "][0]"),
    "work.Sized.time_sized(1000)": ("[1_000, ", "[50, 1_000, "),
}


@pytest.mark.slow
def test_what_an_edited_suite_guts_or_skips_does_not_pass_unless_accepted(repository):
    repository.commit({"benchmarks/work.py": BEFORE})
    skips = "        raise NotImplementedError('too slow')\n\n    def time_skipped"
    skipped = ("        pass\n\n    def time_skipped", skips)
    for old, new in (*GUTTED.values(), *HARMLESS.values(), skipped):
        repository.replace("benchmarks/work.py", old, new)
    repository.write("benchmarks/new.py", "def time_new():\n    pass\n")
    run = repository.count(1, "work|new")
    failed = {name for name, row in run.rows.items() if row["outcome"] == "failed"}
    assert failed == GUTTED.keys(), run.out
    reason = run.rows["work.time_once"]["reasons"][0]
    assert reason.startswith("workload time 0.00")
    assert reason.endswith('if you mean that, accept it with --metric "workload time"')
    (reason,) = run.rows["work.Skipped.time_skipped"]["reasons"]
    assert reason == "on head: the edited suite skips it: NotImplementedError: too slow"
    for name in failed:
        repository.accept(name, "--reason", "cheaper", "--expires", "2999-01-31")
    run = repository.count(0, "once|mem|rate")
    assert "(accepted until 2999-01-31: cheaper)" in run.out
