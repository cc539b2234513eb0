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
SPAWNS = """
import multiprocessing

process = multiprocessing.get_context("spawn").Process()
process.start()
process.join()
"""
FILES = {
    "module.py": "",
    "removed.py": "import sys, types\nsys.modules[__name__] = types.SimpleNamespace()\n",
    "data/values.txt": "1\n",
    "../elsewhere.py": "",
}


@pytest.mark.parametrize(
    ("act", "used", "has_run"),
    [
        ("import module", ["module.py"], False),
        # The first import writes the cache of bytecode, and the second one reads only that.
        ("import removed; del sys.modules['removed']; import removed", ["removed.py"], False),
        ("open(root / 'data' / '..' / 'module.py').close()", ["module.py"], False),
        (
            "os.chdir(root / 'data'); open('values.txt').close(); os.chdir('/')",
            ["data/values.txt"],
            False,
        ),
        ("os.close(os.open(os.fsencode(root / 'module.py'), os.O_RDONLY))", ["module.py"], False),
        ("open(root / 'link.txt').close()", ["link.txt"], False),
        ("open(root / 'none.txt', 'w').close()", ["none.txt"], False),
        ("sys.path.insert(0, str(root.parent)); import elsewhere", ["/elsewhere.py"], False),
        ("open('/etc/hostname').close(); sys.audit('open'); sys.audit('open', 3)", [], False),
        ("import threading; threading.Thread(target=print).start()", [], False),
        ("import subprocess; subprocess.run(['true'])", [], True),
        ("os.system('true')", [], True),
        # Python doesn't hear of this one.
        ("import ctypes; ctypes.CDLL(None).system(b'true')", [], True),
        ("os.waitpid(os.fork() or os._exit(0), 0)", [], True),
        (SPAWNS, [], True),
    ],
)
def test_what_is_imported_or_opened_and_whether_another_process_has_run_is_known(
    tmp_path, act, used, has_run
):
    root = tmp_path / "checkout"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "link.txt").symlink_to("data/values.txt")
    command = [sys.executable, "-c", PROGRAM.format(root=str(root), act=act)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    names, found = json.loads(done.stdout.replace(str(tmp_path.resolve()), ""))
    assert [name for name in names if "/perfgate/" not in name] == used
    assert found == has_run
