"""What our trainers do themselves."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_the_norm_of_gradients_does_not_depend_on_how_they_are_cut() -> None:
    """A million small numbers beside a few large ones: torch's own sum in float32 is off by 6e-5 here."""
    import torch

    from kernel_launcher.worker.trainer import gradient_norm

    gradient = torch.randn(49152, 32, generator=torch.Generator().manual_seed(0)) * 1e-5
    gradient[:400] *= 1000
    exact = gradient.double().norm().item()
    for parts in (1, 2, 8):
        assert exact == pytest.approx(gradient_norm(list(gradient.chunk(parts))).item(), rel=1e-7)
    assert torch.float32 == gradient_norm([gradient.to(torch.bfloat16)]).dtype
