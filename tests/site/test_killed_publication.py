"""A publication that is killed leaves the whole old site or the whole new one."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from published_results import contents

from ci.site.build import publish

OLD, NEW = datetime(2026, 11, 21, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
# Publishes, and dies at the first audit event of a name.
DIES = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from ci.site.build import publish

event, site, built = sys.argv[1:]
sys.addaudithook(lambda each, _: each == event and os.kill(os.getpid(), signal.SIGKILL))
publish(Path(site).parent / "results", Path(site), datetime.fromisoformat(built))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders at once")
@pytest.mark.parametrize(
    ("event", "left"), [("ctypes.dlsym", "old"), ("shutil.rmtree", "new")], ids=["before", "after"]
)
def test_a_kill_around_the_exchange_leaves_a_whole_site(event, left, tmp_path):
    (tmp_path / "results").mkdir()
    for name, built in (("old", OLD), ("new", NEW)):
        publish(tmp_path / "results", tmp_path / name, built)
    site = tmp_path / "site"
    shutil.copytree(tmp_path / "old", site)
    command = [sys.executable, "-c", DIES, event, str(site), NEW.isoformat()]
    assert subprocess.run(command, check=False).returncode == -9
    assert contents(site) == contents(tmp_path / left)
    publish(tmp_path / "results", site, NEW)
    assert contents(site) == contents(tmp_path / "new")
