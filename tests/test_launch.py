"""Which process of a training this is: as flags say, or the variables of a launcher."""

import pytest

from myriad.errors import InvalidArgumentError
from myriad.launch import Launch, find_launch

SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[003-007,9],cpu1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "1234.1",
}
SEVERAL_HOSTS = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "1"}


def test_srun_says_all():
    launch = find_launch(environ=SLURM)
    host, _, port = launch.coordinator.partition(":")
    assert host == "gpu003"
    assert 20_000 <= int(port) < 30_000
    assert (launch.num_processes, launch.process_id) == (8, 3)
    assert (launch.local_rank, launch.local_processes) == (1, 2)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a1", "a1"), ("a1,a2", "a1"), ("n[3-5]", "n3"), ("n[07,09]-ib", "n07-ib"), ("x,n[1-2]", "x")],
)
def test_the_first_node_is_where_all_meet(nodes, first):
    launch = find_launch(environ=SLURM | {"SLURM_STEP_NODELIST": nodes})
    assert launch.coordinator.startswith(f"{first}:")


def test_all_processes_of_a_job_come_to_one_port_and_another_job_to_another():
    ports = {
        find_launch(environ=SLURM | {"SLURM_PROCID": str(n), "SLURM_JOB_ID": job}).coordinator
        for n in range(8)
        for job in ("77", "78")
    }
    assert len(ports) == 2


def test_mpirun_in_a_job_of_slurm_says_it():
    launch = find_launch(environ=SLURM | OPEN_MPI)
    assert (launch.num_processes, launch.process_id) == (2, 1)


def test_variables_of_ours_say_what_no_launcher_does():
    ours = {"MYRIAD_COORDINATOR": "myriad-0:20123", "MYRIAD_NUM_PROCESSES": "2"}
    launch = find_launch(environ=KUBERNETES | ours)
    assert launch == Launch("myriad-0:20123", 2, 1)
    assert find_launch("a:1", environ=KUBERNETES | ours).coordinator == "a:1"


def test_a_variable_says_how_long_to_wait_for_the_others():
    launch = find_launch(environ=SLURM | {"MYRIAD_START_TIMEOUT_S": "600"})
    assert launch.start_timeout_s == 600
    assert find_launch(environ=SLURM).start_timeout_s == 60
    with pytest.raises(InvalidArgumentError, match="MYRIAD_START_TIMEOUT_S must be an integer"):
        find_launch(environ=SLURM | {"MYRIAD_START_TIMEOUT_S": "a minute"})
    for wrong in (0, "60"):
        with pytest.raises(InvalidArgumentError, match="start_timeout_s must be an integer"):
            Launch("a:1", 2, 0, start_timeout_s=wrong)


def test_mpirun_says_all_on_one_host():
    launch = find_launch(environ=OPEN_MPI)
    assert launch.coordinator.startswith("127.0.0.1:")
    assert (launch.num_processes, launch.process_id, launch.local_processes) == (2, 1, 2)


def test_mpirun_says_on_several_hosts_where_it_runs():
    contact = {"OMPI_MCA_orte_hnp_uri": "123.0;tcp://10.0.0.7,192.168.0.7:4567"}
    launch = find_launch(environ=SEVERAL_HOSTS | contact)
    assert launch.coordinator.startswith("10.0.0.7:")


def test_flags_win_over_a_launcher():
    launch = find_launch("there:1", 4, 2, OPEN_MPI)
    assert launch == Launch("there:1", 4, 2, local_rank=1, local_processes=2)


@pytest.mark.parametrize(
    ("given", "environ", "sentence"),
    [
        ((), {}, "--distributed needs a launcher, such as srun or mpirun"),
        (("a:1", 2), {}, "--process-id is missing: give a flag, or set MYRIAD_PROCESS_ID"),
        (
            (),
            KUBERNETES,
            "--coordinator and --num-processes are not among what the Job of Kubernetes says",
        ),
        ((), SEVERAL_HOSTS, "--coordinator is not among what mpirun says"),
        (("a", 2, 0), {}, "coordinator must be a host and a port"),
        (("a:0", 2, 0), {}, "coordinator must be a host and a port"),
        (("a:b", 2, 0), {}, "coordinator must be a host and a port"),
        ((":1", 2, 0), {}, "coordinator must be a host and a port"),
        (("a:1", 0, 0), {}, "num_processes must be an integer of at least 1, but got 0"),
        (("a:1", 2, 2), {}, "process_id must be an integer from 0 to 1, since there are 2"),
        ((), SLURM | {"SLURM_PROCID": "x"}, "SLURM_PROCID must be an integer, but is 'x'"),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence(given, environ, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        find_launch(*given, environ=environ)


def test_kubernetes_needs_the_manifest_to_say_the_rest():
    assert find_launch("myriad-0.myriad:20123", 2, environ=KUBERNETES).process_id == 1
