"""The texts of the dashboard: what a person reads, safe and bounded."""

from __future__ import annotations

import pytest

from tests.unit.test_face_static import Page
from tests.unit.test_summary import event, status
from tests.unit.views import GB, PLANNED, beat, moment, step
from veri_jupyter.monitor import panels, samples
from veri_jupyter.monitor.chart import axis_end, epoch_marks, main_panels, side_panels
from veri_jupyter.monitor.moment import Planned


def text(html: str) -> str:
    return Page(html).text


def test_the_line_of_status_of_a_running_job() -> None:
    """State, name, step, time left, clock time of the end, epoch, age of the last event."""
    shown = moment(step(40, step_seconds=10.0, epoch=1.2), name="mine")
    said = text(panels.status(shown))
    assert "● running" in said
    assert "mineStep 40 of 100, about 10 min left · until 11:22 · epoch 1.2 of 3seen 12 s ago" in said
    assert "This view stands still since 11:12:22. Go on: %veri_attach mine-20250101-101010-ab12" in said


def test_the_line_of_status_of_a_job_that_is_over() -> None:
    """Nothing that would stand still: no age, no veil."""
    said = text(panels.status(moment(step(40), status("completed"))))
    assert "✓ completedfirstDone in 2 min · 40 steps" == said


def test_figures_have_their_places_before_they_are_known() -> None:
    """No cell appears later, so that nothing moves."""
    labels = ["loss", "evaluation", "tokens/s", "learning rate", "gradient norm"]
    for shown in (moment(), moment(step(1), event("eval", rank=0, step=1, metrics={"eval_loss": 2.5}))):
        tags = [value for tag, value in Page(panels.figures(shown)).tags if value.get("class") == "label"]
        assert len(labels) == len(tags)
    said = text(panels.figures(shown))
    for word in ("loss2.99", "evaluation2.50best 2.50 at 1", "tokens/s410", "learning rate2.0e-4"):
        assert word in said


def test_a_preference_job_shows_margin_and_accuracy() -> None:
    """For DPO they say more than the loss."""
    planned = Planned(method="dpo")
    row = {"rewards/margins": 0.25, "rewards/accuracies": 0.75}
    shown = moment(step(1, **row), planned=planned)  # type: ignore[arg-type]
    assert ["loss", "margin", "accuracy"] == [panel.title for panel in main_panels(shown)]
    assert "margin0.25" in text(panels.figures(shown))
    assert "accuracy75%" in text(panels.figures(shown))


def test_an_answer_is_no_warning() -> None:
    """It has a tab of its own; a warning stands above the chart."""
    answers = event("samples", rank=0, step=0, samples=[{"prompt": "why", "text": "because"}])
    shown = moment(step(1), answers, event("warning", rank=0, message="rows were cut"))
    said = text(panels.figures(shown))
    assert "rows were cut" in said
    assert "because" not in said
    assert "because" in text(samples.html(shown.samples))


def test_a_loss_that_is_not_finite_is_said() -> None:
    """It is neither zero nor missing."""
    assert "lossnot finite" in text(panels.figures(moment(step(1), step(2, loss=None))))


def test_gpus_are_mentioned_only_where_there_are_some() -> None:
    """A rank on the processor has no GPU to be busy."""
    assert "busy" not in text(panels.figures(moment(step(1))))
    planned = Planned(method="sft_text", on_gpu=True, tokens_per_second_at_most=1000.0)
    assert "41% MFU · GPUs 97% busy" in text(panels.figures(moment(step(1), planned=planned, busy=0.97)))


def test_memory_is_planned_as_an_outline_and_measured_solid() -> None:
    """Each rank: now, the most so far, and what was planned."""
    page = Page(panels.memory(moment(beat(0, 16 * GB, 18 * GB), beat(1, 15 * GB, 15 * GB))))
    assert "rank 016.0 / 18.0 GBrank 115.0 / 15.0 GB" in page.text
    assert "planned 17.0 GB" in page.text
    assert "rank 2—rank 3—" in page.text
    assert 2 == sum(value.get("class") == "most" for _, value in page.tags)
    assert 4 == sum(value.get("class") == "plan" for _, value in page.tags)
    assert 1 == sum(value.get("class") == "value over" for _, value in page.tags)


def test_of_many_ranks_the_least_the_middle_and_the_most() -> None:
    """Nine bars are a fence."""
    found = Page(panels.memory(moment(*(beat(rank, (10 + rank) * GB, 20 * GB) for rank in range(9)))))
    assert "least10.0 / 20.0 GBmedian14.0 / 20.0 GBmost18.0 / 20.0 GB" in found.text


def test_the_plan_beside_what_came() -> None:
    """Planned and measured in one row, with the difference."""
    plan = event("plan", line="plan: dp=2", resolved_parallelism={"data_parallel_size": 2}, warnings=[])
    said = text(panels.against_plan(moment(plan, step(3), beat(0, GB, 16 * GB))))
    assert "17.0 GB ± 1.0 GB, end of backward16.0 GB (-6%)" in said
    assert "plan: dp=2" in said
    assert "There is no plan to compare with." == text(panels.against_plan(moment(planned=Planned())))


def test_the_plan_is_of_the_rows_that_came() -> None:
    """Where none is as long as it might have been, half of the memory is no surprise."""
    peak = {"length": 184, "total_bytes": 8 * GB, "band_bytes": GB, "phase": "loss, backward"}
    shown = moment(beat(0, GB, 8 * GB), planned=PLANNED.for_rows(peak))
    assert "8.0 GB ± 1.0 GB, loss, backward, rows of 184 tokens at most8.0 GB (+0%)" in text(
        panels.against_plan(shown)
    )
    assert "planned 8.0 GB" in text(panels.memory(shown))
    assert PLANNED == PLANNED.for_rows(None)
    assert Planned() == Planned().for_rows(peak)


def test_epochs_are_marked_while_they_are_few() -> None:
    """A line where an epoch ends; hundreds of epochs would be a fence."""
    assert [33.33, 66.67] == epoch_marks(moment(step(20, epoch=0.6)))
    assert [] == epoch_marks(moment(step(20, epoch=20.0)))
    assert [] == epoch_marks(moment(step(20)))


def test_small_charts_of_what_is_there() -> None:
    """A metric that no step has is not shown as an empty chart."""
    assert ["tokens/s", "learning rate", "gradient norm"] == [panel.title for panel in side_panels(moment(step(1)))]


def test_a_figure_is_where_its_line_ends() -> None:
    """Two numbers for one thing on one page would be a riddle; a learning rate has no noise, so no mean either."""
    shown = moment(*(step(number, tokens_per_second=400.0 + number % 2 * 100, learning_rate=1 / number)
                     for number in range(1, 201)))  # fmt: skip
    lines = {panel.title: panel.line("smooth") for panel in side_panels(shown)}
    speed, rate = lines["tokens/s"], lines["learning rate"]
    assert speed is not None
    assert rate is not None
    assert f"tokens/s{speed.last:,.0f}" in text(panels.figures(shown))
    assert 400 < (speed.last or 0) < 500
    assert pytest.approx(1 / 200) == rate.last


def test_samples_mark_what_changed() -> None:
    """The base's answer beside the newest, changed words marked."""
    steps = [(at, [{"prompt": "Say it", "text": said, "finished": True}])
             for at, said in ((0, "a b c"), (5, "x"), (10, "a b c"), (15, "a B c"))]  # fmt: skip
    page = Page(samples.html(steps))
    assert "basea b c" in page.text
    assert "step 15a B c" in page.text
    assert "step 5" not in page.text
    assert "<mark>B</mark>" in samples.html(steps)


def test_why_there_are_no_samples() -> None:
    """Not yet, never, or it ended before."""
    assert "" == samples.html([])
    assert "(nothing)" in samples.html([(0, [{"prompt": "Say it", "text": " \n\n"}])])
    assert "No answers yet." == text(panels.no_samples(moment()))
    assert "This run took no samples." == text(panels.no_samples(moment(status("cancelled"))))
    never = Planned(has_samples=False)
    assert "This run takes no samples." == text(panels.no_samples(moment(planned=never)))


def test_what_is_awaited_stands_where_the_curve_will_be() -> None:
    """No empty axes: what the job does, and when there will be something to see."""
    loading = moment(event("phase", rank=0, phase="load"))
    assert text(panels.caption(loading)).endswith("Loading the modelthe curve begins after step 1")
    assert text(panels.caption(moment(status("cancelled")))).endswith("No step was done.")
    assert text(panels.caption(moment(step(1)))).endswith("mean of about 5")


def test_the_end_says_what_came_of_it() -> None:
    """Loss from where to where, memory beside the plan, and the folder of the model."""
    steps = [step(number) for number in (*range(1, 6), *range(96, 101))]
    said = text(panels.figures(moment(*steps, beat(0, GB, 16 * GB), status("completed"))))
    assert said.endswith(
        "loss 2.970 → 2.020 (5 steps each) · peak 16.0 GB, planned 17.0 GB (-6%) · model /home/ada/runs/first/final"
    )


def test_a_young_run_can_be_seen() -> None:
    """Four of 100,000 steps are not a line at the left edge; the axis grows by doubling, and ends with the run."""
    assert 97.65625 == axis_end(moment(step(4, total=100_000)))
    assert 100_000 == axis_end(moment(step(50_000, total=100_000)))
    assert 30 == axis_end(moment(step(1, total=30)))
    assert 40 == axis_end(moment(step(40, total=100), status("cancelled")))
