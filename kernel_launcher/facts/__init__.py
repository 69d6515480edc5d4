"""What the machine and the model are: the I/O that feeds the planner."""

from kernel_launcher.facts.hub import hub_facts
from kernel_launcher.facts.machine import gpu_names, hardware_for
from kernel_launcher.facts.model import read_model_facts

__all__ = ["gpu_names", "hardware_for", "hub_facts", "read_model_facts"]
