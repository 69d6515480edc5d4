"""What a notebook shows of a job while time goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kernel.fakes import FakeJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kernel.kernels import Kernel

THREADS = "import threading; print([t.name for t in threading.enumerate() if t.name.startswith('veri')])"


@pytest.fixture
def job(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path / "run", "watched")


@pytest.fixture(autouse=True)
def _quiet(kernel: Kernel) -> Iterator[None]:
    yield
    kernel.run("%reload_ext veri_jupyter")
    kernel.hear(0.1)


def test_the_summary_follows_the_job_to_its_end(kernel: Kernel, job: FakeJob) -> None:
    """Attach shows HTML and text, updates arrive by themselves, and the last one is the end."""
    shown = kernel.run("%veri_attach watched").shown
    assert 2 == len(shown)
    assert "provisioning" in shown[0]["text/plain"]
    assert "loss: no step yet" == shown[1]["text/plain"]
    assert "%veri_attach watched-20250101-101010-ab12" in shown[0]["text/html"]
    job.status("running")
    job.step(3, tokens_per_second=410.0)
    update = kernel.hear(10, until="Step 3 of 30").updates[-1]
    assert "loss 3.100 → 3.100 · tokens/s 410" in update["text/plain"]
    assert "Step 3 of 30" in update["text/html"]
    job.status("completed")
    assert "Done in" in kernel.hear(10, until="Done in").updates[-1]["text/plain"]
    (figure,) = kernel.hear(30, until="vnd.plotly").updates
    assert "loss 3.10 ▁ 3.10" == figure["text/plain"]
    assert [] == kernel.hear(1.5).updates
    assert "[]\n" == kernel.run(THREADS).stdout


def test_one_update_reaches_every_cell_that_shows_the_job(kernel: Kernel, job: FakeJob) -> None:
    """However often a job is shown, there is one thread and one update a round."""
    kernel.run("%veri_attach watched")
    kernel.run("%veri_attach watched")
    assert "['veri-pump']\n" == kernel.run(THREADS).stdout
    texts = [update["text/plain"] for update in kernel.hear(3.5).updates]
    assert "provisioning" in texts[-1]
    assert len(set(texts)) == len(texts)
    job.status("cancelled")


def test_a_job_as_the_value_of_a_cell_is_live(kernel: Kernel, job: FakeJob) -> None:
    """The last expression of a cell keeps itself current, too."""
    shown = kernel.run("import veri_jupyter\nveri_jupyter.attach('watched')").shown
    assert "provisioning" in shown[0]["text/plain"]
    job.status("cancelled")
    assert "Stopped at" in kernel.hear(10, until="Stopped at").updates[-1]["text/plain"]


def test_a_failure_shows_what_and_why(kernel: Kernel, job: FakeJob) -> None:
    """The end of a failed job: headline, code, whose it is, the last lines of the log."""
    kernel.run("%veri_attach watched")
    job.fail(
        code="oom",
        message="rank 0/1 (node 0, local_rank 0) failed: OutOfMemoryError: too much\nplan: dp=1",
        attribution="customer",
        log_tail=["Traceback <b>", "OutOfMemoryError: too much"],
        rank=0,
    )
    last = kernel.hear(10, until="OutOfMemoryError").updates[-1]
    assert "rank 0/1 (node 0, local_rank 0) failed: OutOfMemoryError: too much" in last["text/plain"]
    assert "oom: yours to fix" in last["text/plain"]
    assert "Traceback &lt;b&gt;" in last["text/html"]


def test_waiting_for_a_failed_job_raises_its_failure(kernel: Kernel, job: FakeJob) -> None:
    """The cell fails with the failure's headline; job.error has the rest."""
    kernel.run("import veri_jupyter\njob = veri_jupyter.attach('watched')")
    job.fail(code="oom", message="rank 0/1 failed: too much\nplan: dp=1", attribution="customer", rank=0)
    reply = kernel.run("job.final_dir")
    assert "JobFailed" == reply.ename
    assert "rank 0/1 failed: too much" in reply.evalue
    assert "Traceback" not in "".join(reply.traceback)
    assert "oom customer\n" == kernel.run("print(job.error.code, job.error.attribution)").stdout


def test_an_interrupted_wait_leaves_the_job_running(kernel: Kernel, job: FakeJob) -> None:
    """Interrupting the kernel detaches, and says how to attach again and how to stop."""
    kernel.run("import veri_jupyter\njob = veri_jupyter.attach('watched')")
    kernel.begin("job.wait()", until="Waiting for watched")
    reply = kernel.interrupt()
    assert ("error", "Detached") == (reply.status, reply.ename)
    assert "%veri_attach watched-20250101-101010-ab12" in "\n".join(reply.traceback)
    assert "%veri_stop watched-20250101-101010-ab12" in "\n".join(reply.traceback)
    assert "provisioning" == job.look().status
    job.status("cancelled")


def test_a_wait_is_never_blind(kernel: Kernel, job: FakeJob) -> None:
    """Who waits sees the job: where it was shown before, or else in the cell that waits."""
    kernel.run("import veri_jupyter\njob = veri_jupyter.attach('watched')")
    first = kernel.run("job.wait(timeout=0.5)")
    assert "Waiting for watched; interrupting the cell leaves the job running.\n" == first.stdout
    assert ["TimeoutError", 2] == [first.ename, len(first.shown)]
    assert [] == kernel.run("job.wait(timeout=0.5)").shown
    kernel.run("%reload_ext veri_jupyter")
    quiet = kernel.run("job.wait(timeout=0.5, quiet=True)")
    assert ("", []) == (quiet.stdout, quiet.shown)
    headless = kernel.run("job.wait(timeout=0.5)", interactive=False)
    assert ("", 2) == (headless.stdout, len(headless.shown))
    job.status("completed")
    last = kernel.run("job.wait()")
    assert ("", []) == (last.stdout, last.shown)


def test_a_wait_has_an_end(kernel: Kernel, job: FakeJob) -> None:
    """wait(timeout) raises TimeoutError, and the job goes on."""
    reply = kernel.run("import veri_jupyter\nveri_jupyter.attach('watched').wait(timeout=0.5)")
    assert "TimeoutError" == reply.ename
    assert "provisioning" == job.look().status
    job.status("cancelled")


def test_unloading_ends_the_drawing(kernel: Kernel, job: FakeJob) -> None:
    """After unload no thread is left and nothing is drawn."""
    kernel.run("%veri_attach watched")
    kernel.run("%unload_ext veri_jupyter")
    assert "[]\n" == kernel.run(THREADS).stdout
    job.status("running")
    assert [] == kernel.hear(2).updates
    kernel.run("%load_ext veri_jupyter")
    job.status("cancelled")


def test_a_stopped_job_is_shown_at_its_end_before_the_cell_ends(kernel: Kernel, job: FakeJob) -> None:
    """Also when nothing draws any more after the stop: what is saved is the end."""
    kernel.run("%veri_attach watched")
    with job.answering():
        reply = kernel.run("%veri_stop watched\n%unload_ext veri_jupyter")
    assert "■ cancelled watched · Stopped at step 0" in reply.stdout
    assert "Stopped at" in reply.updates[-1]["text/plain"]
    kernel.run("%load_ext veri_jupyter")


def test_the_list_shows_each_job_on_a_line(kernel: Kernel, job: FakeJob) -> None:
    """%veri_jobs: a table, with text for those who show none."""
    job.status("running")
    shown = kernel.run("%veri_jobs").shown[0]
    assert "● running watched" in shown["text/plain"]
    assert "<table" in shown["text/html"]
    assert "watched-20250101-101010-ab12" in shown["text/html"]
    job.status("cancelled")


def test_logs_of_a_rank_that_wrote_none(kernel: Kernel, job: FakeJob) -> None:
    """No log is a sentence."""
    reply = kernel.run("%veri_logs watched --rank 5")
    assert "rank 5 has written nothing.\n" == reply.stdout
    job.status("cancelled")
