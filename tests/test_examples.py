"""The scripts in examples/ run as they stand; a page's tests run those it shows."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from myriad.settings import Settings
from tests.child_processes import free_port, lacks, run

ROOT = Path(__file__).parents[1]
DISTRIBUTED = ROOT / "examples" / "distributed"
SMALL = ["--env=cartpole", "--agent=ppo", "--num-envs=8", "--steps-per-env=64"]
SMALL += ["--rollout-steps=32", "--agent.num-minibatches=2", "--agent.num-epochs=1"]


def train_by(script, folder, **variables):
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [*SMALL, f"--run-folder={folder}/run", "--quiet"]
    done = run(DISTRIBUTED / script, *words, cwd=folder, **variables)
    assert done.stdout.count("return ") == 1
    last = (folder / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["steps"] == 8 * 64


@pytest.mark.long
def test_two_processes_train_as_in_two_terminals(tmp_path):
    train_by("two_processes.sh", tmp_path, PORT=str(free_port()))


@pytest.mark.long
def test_mpirun_trains(tmp_path):
    if shutil.which("mpirun") is None:
        lacks("mpirun is missing: apt install openmpi-bin")
    how = "mpirun --allow-run-as-root --oversubscribe -n 2"
    train_by("mpirun.sh", tmp_path, MPIRUN=how, JAX_NUM_CPU_DEVICES="1")


def test_the_manifest_says_all_that_a_pod_needs_to_know():
    _, job = yaml.safe_load_all((DISTRIBUTED / "kubernetes.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    # Kubernetes puts in the number of the pod.
    given = {each["name"]: each.get("value", "1") for each in container["env"]}
    settings = Settings.read(None, given)
    assert settings.num_processes == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert settings.process_id == 1
    assert settings.coordinator == "myriad-0.myriad:20123"
    assert container["command"][-1].count("myriad train --distributed") == 2


SCRIPTS = [*sorted(DISTRIBUTED.glob("*.s*")), *sorted((ROOT / "ci").glob("*.sh"))]


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_scripts_are_shell_without_a_mistake(script):
    assert os.access(script, os.X_OK)
    run("bash", "-n", script)
