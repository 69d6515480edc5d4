"""What a training step holds at its worst moments, measured without a GPU: torch's own tracker over fake tensors.

``python -m kernel_launcher.tracker`` is a process of its own: it needs torch, and plays one rank of many in it (a
fake process group). Nothing is computed, so a run takes seconds and little memory. Kernels and TRL's loss are those
of the CPU, and gradients are never added in place, as under any dispatch mode.
"""
