"""Set up and call one row of every benchmark, as asv would; print what became of each as JSON.

    python one_row_of_each_suite.py <benchmarks folder>

test_every_suite_runs.py starts it, also with an older package of Myriad on the path.
"""

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

# Tuning from nothing takes half a minute; its `setup` has shown by then whether a commit can.
ONLY_SET_UP = ("AutotuneCold",)


def outcome_of(benchmark, caches):
    """Run the first row of a benchmark; return `ok`, `skipped: ...` or the error."""
    try:
        if benchmark._setup_cache is not None:
            key = benchmark.setup_cache_key
            if key not in caches:
                caches[key] = benchmark.do_setup_cache()
            benchmark.set_cache(caches[key])
        benchmark.set_param_idx(0)
        for setup in benchmark._setups:
            setup(*benchmark._build_params())
        if not any(name in benchmark.name for name in ONLY_SET_UP):
            if "timeraw_" in benchmark.name:
                benchmark._get_timer(*benchmark._build_params()).timeit(1)
            else:
                for _ in range(2):  # a call may leave nothing that the next one needs
                    benchmark.func(*benchmark._build_params())
    except NotImplementedError as reason:
        return f"skipped: {reason}"
    except BaseException:  # noqa: BLE001  (the test shows whatever a suite raised)
        return traceback.format_exc()
    return "ok"


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from asv_runner import discovery

    folder = sys.argv[1]
    discovery.update_sys_path(folder)
    sys.stderr.write(f"{folder}\n")
    found = list(discovery.disc_benchmarks(folder))
    caches = {}
    os.chdir(tempfile.mkdtemp(dir=Path(folder).parent))
    outcomes = {each.name: outcome_of(each, caches) for each in found}
    import myriad

    print(json.dumps({"package": myriad.__file__, "outcomes": outcomes}), file=replies, flush=True)


if __name__ == "__main__":
    main()
