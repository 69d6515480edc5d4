"""The variables that a job runs with: the user's, less what belongs to the kernel or to another launch."""

from __future__ import annotations

import json
import os

import pytest
from jupyter_client.manager import KernelManager

from kernel_launcher.launcher.environment import job_environment
from kernel_launcher.planner import Hardware, ModelFacts, make_plan
from kernel_launcher.spec import read_spec

L4S = Hardware(gpu_type="L4-24GB", gpu_memory_bytes=(24 * 10**9,) * 4, cores=16, host_memory_bytes=64 * 10**9)
CPU = Hardware(gpu_type="CPU", cores=16, host_memory_bytes=64 * 10**9)
FOREIGN = {
    "JPY_PARENT_PID", "JPY_SESSION_NAME", "JPY_API_TOKEN", "JUPYTER_TOKEN", "JUPYTERHUB_API_TOKEN", "MPLBACKEND",
    "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "PAGER", "GIT_PAGER", "PYDEVD_USE_FRAME_EVAL",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT", "PET_NPROC_PER_NODE",
    "ACCELERATE_USE_FSDP", "ACCELERATE_MIXED_PRECISION", "FSDP_VERSION", "RANK", "LOCAL_RANK", "WORLD_SIZE",
    "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
    "MPI_LOCALRANKID",
}  # fmt: skip
OWN = {
    "HOME": "/home/x",
    "PATH": "/bin",
    "HF_TOKEN": "t",
    "HF_HOME": "/cache",
    "TERM": "xterm",
    "LANG": "C",
    "MKL_DEBUG": "1",
}


def environment(hardware=CPU, inherited=None, **settings):
    plan = make_plan(read_spec({"base_model": "owner/model", **settings}), hardware, ModelFacts())
    return job_environment(plan, hardware.cores, OWN if inherited is None else inherited)


def test_nothing_of_the_kernel_or_of_another_launch_is_left():
    """A job that starts from a notebook, or from inside a torchrun, believes neither."""
    found = environment(inherited=OWN | dict.fromkeys(FOREIGN, "1"))
    assert set() == FOREIGN & set(found)
    assert OWN == {name: found[name] for name in OWN}


def test_what_a_real_kernel_sets_is_known():
    """Whatever this ipykernel sets for its own sake is taken out again; a terminal type may stay."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    said: list[str] = []
    try:
        client.wait_for_ready(timeout=60)
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        client.execute_interactive(code, output_hook=lambda message: said.append(message["content"].get("text", "")))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    inside = json.loads("".join(said))
    added = {name for name, value in inside.items() if os.environ.get(name) != value}
    assert "JPY_PARENT_PID" in added
    assert {"TERM"} >= added & set(environment(inherited=inside)) - {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}


@pytest.mark.parametrize(("ranks", "threads"), [(1, "16"), (2, "8"), (3, "5"), (8, "2")])
def test_the_ranks_share_the_cores(ranks, threads):
    """Each rank computes with its part of the cores, and not with more of them than that; at least with one."""
    assert threads == environment(gpu_count=ranks, inherited={"OMP_NUM_THREADS": "64"})["OMP_NUM_THREADS"]
    one_core = Hardware(gpu_type="CPU", cores=1, host_memory_bytes=1)
    assert "1" == environment(one_core, gpu_count=2)["OMP_NUM_THREADS"]


@pytest.mark.parametrize(
    ("asked", "threads"), [("1", "1"), ("7", "7"), ("0", "8"), ("", "8"), ("4,2", "8"), ("-1", "8")]
)
def test_a_user_who_wants_fewer_threads_gets_them(asked, threads):
    """What is no number of threads counts as no wish."""
    assert threads == environment(gpu_count=2, inherited={"OMP_NUM_THREADS": asked})["OMP_NUM_THREADS"]


@pytest.mark.parametrize(
    ("visible", "settings", "expected"),
    [
        (None, {}, None),
        ("2,3", {}, "2,3"),
        (None, {"gpu_ids": [0, 2]}, "0,2"),
        ("", {"gpu_ids": [1]}, "1"),
        ("4,5,6,7", {"gpu_ids": [0, 2]}, "4,6"),
        (" GPU-a , GPU-b ", {"gpu_ids": [1, 0]}, "GPU-b,GPU-a"),
    ],
)
def test_gpus_are_counted_from_those_that_one_sees(visible, settings, expected):
    """``--gpus 0,2`` in a session that sees 4,5,6,7 are 4 and 6."""
    inherited = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert expected == environment(L4S, inherited, **settings).get("CUDA_VISIBLE_DEVICES")


def test_a_job_on_the_processor_sees_no_gpu():
    """Ranks on gloo do not open a context on a GPU that somebody else uses."""
    assert "" == environment(CPU, {"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"]


def test_ranks_talk_on_the_loopback_interface_only():
    """No port of a job is open to the network."""
    found = environment()
    assert ("lo", "lo") == (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"])
    assert "1" == found["PYTHONUNBUFFERED"]
