from tests.planted_faults import ROOT, planted_faults


def test_each_planted_fault_still_finds_its_line_and_its_tests():
    for name, fault in planted_faults().items():
        assert (ROOT / fault["file"]).read_text(encoding="utf-8").count(fault["old"]) == 1, name
        assert all((ROOT / test).exists() for test in fault["tests"]), name
