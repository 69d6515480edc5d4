"""How a job will run: pure arithmetic from spec, model and hardware to a plan."""

from kernel_launcher.planner.estimate import Estimate
from kernel_launcher.planner.inputs import Hardware, ModelFacts
from kernel_launcher.planner.make import make_plan
from kernel_launcher.planner.plan import Default, Plan

__all__ = ["Default", "Estimate", "Hardware", "ModelFacts", "Plan", "make_plan"]
