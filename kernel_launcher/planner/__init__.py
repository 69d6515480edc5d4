"""How a job will run: pure arithmetic from spec, model and hardware to a plan."""

from kernel_launcher.planner.inputs import Hardware, ModelFacts
from kernel_launcher.planner.plan import Default, Estimate, Plan, make_plan

__all__ = ["Default", "Estimate", "Hardware", "ModelFacts", "Plan", "make_plan"]
