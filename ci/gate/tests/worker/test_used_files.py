"""A worker knows which files were imported or opened, and whether another process has run."""

import json
import subprocess
import sys

import pytest

# In a new interpreter, since nobody can take an audit hook away.
PROGRAM = """
import json
import os
import sys
from pathlib import Path

from perfgate.worker import used_files

root = Path({root!r})
sys.path.insert(0, str(root))
used_files.listen()
{act}
print(json.dumps([sorted(used_files.used_below(root)), used_files.has_any_process_run()]))
"""
FILES = ("module.py", "opened.py", "low.py", "data/values.txt", "../elsewhere.py")
REMOVED = "import sys, types\nsys.modules[__name__] = types.SimpleNamespace()\n"
READS = """
import module
import removed
del sys.modules["removed"]
import removed  # the first import writes the cache of bytecode, and this one reads only that
open(root / "data" / ".." / "opened.py").close()
os.chdir(root / "data")
open("values.txt").close()
os.close(os.open(os.fsencode(root / "low.py"), os.O_RDONLY))
open(root / "link.txt").close()
open(root / "none.txt", "w").close()
sys.path.insert(0, str(root.parent))
import elsewhere
open("/etc/hostname").close()
sys.audit("open")
sys.audit("open", 3)
import threading
threading.Thread(target=print).start()
"""
USED = ["/elsewhere.py", "data/values.txt", "link.txt", "low.py", "module.py", "none.txt"]
USED += ["opened.py", "removed.py"]


@pytest.mark.parametrize(
    ("act", "used", "has_run"),
    [
        pytest.param(READS, USED, False, id="reads"),
        ("import subprocess; subprocess.run(['true'])", [], True),
        # Python doesn't hear of this one.
        ("import ctypes; ctypes.CDLL(None).system(b'true')", [], True),
        ("os.waitpid(os.fork() or os._exit(0), 0)", [], True),
    ],
)
def test_what_is_imported_or_opened_and_whether_another_process_has_run_is_known(
    tmp_path, act, used, has_run
):
    root = tmp_path / "checkout"
    (root / "data").mkdir(parents=True)
    for name in FILES:
        (root / name).touch()
    (root / "removed.py").write_text(REMOVED)
    (root / "link.txt").symlink_to("data/values.txt")
    command = [sys.executable, "-c", PROGRAM.format(root=str(root), act=act)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    names, found = json.loads(done.stdout.replace(str(tmp_path.resolve()), ""))
    assert [name for name in names if "/perfgate/" not in name] == used
    assert found == has_run
