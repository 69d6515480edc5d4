"""bfloat16 by chance: right on average, the same for the same key, and nothing else is touched."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kernel_launcher.worker.rounding import Chance, key_of, narrowed, round_into  # noqa: E402

pytestmark = pytest.mark.torch


def test_small_changes_survive_on_average() -> None:
    """Weights that moved by a hundredth of a step of their format: to the nearest, all of it would be lost."""
    before = torch.full((1 << 16,), 1.0)
    step = 2**-7
    moved = before + step / 100
    assert torch.equal(before, moved.to(torch.bfloat16).float())
    saved = narrowed("weight", moved, torch.bfloat16, seed=0).float()
    assert {1.0, 1.0 + step} == set(saved.unique().tolist())
    assert step / 100 == pytest.approx((saved - before).mean().item(), rel=0.2)


def test_a_weight_is_saved_the_same_each_time_and_alike_with_no_other() -> None:
    """By seed and name; over more than one chunk."""
    weight = torch.linspace(-2, 2, (1 << 20) + 3).reshape(-1, 1)
    one = narrowed("a", weight, torch.bfloat16, seed=1)
    assert weight.shape == one.shape
    assert torch.equal(one, narrowed("a", weight.clone(), torch.bfloat16, seed=1))
    for name, seed in (("b", 1), ("a", 2)):
        assert not torch.equal(one, narrowed(name, weight, torch.bfloat16, seed=seed))
    assert one.float().sub(weight).abs().max() <= 2**-7


def test_what_fits_is_kept_as_it_is() -> None:
    """Other formats, integers, and float32 that bfloat16 can hold; nothing is written into the weight itself."""
    weight = torch.tensor([1.0, -0.5, 0.0, float("inf"), 1 + 2**-9])
    before = weight.clone()
    assert torch.equal(before[:4], narrowed("a", weight, torch.bfloat16, seed=0).float()[:4])
    assert torch.equal(before, weight)
    assert torch.equal(before, narrowed("a", weight, torch.float32, seed=0))
    counts = torch.tensor([1, 2])
    assert counts.dtype == narrowed("a", counts, torch.bfloat16, seed=0).dtype
    assert torch.bfloat16 == narrowed("a", torch.empty(0), torch.bfloat16, seed=0).dtype


def test_cudas_nan_stays_one() -> None:
    """All its bits are set: a carry would make it minus zero."""
    value = torch.full((4,), 0x7FFF_FFFF, dtype=torch.int32).view(torch.float32)
    narrow = torch.zeros(4, dtype=torch.bfloat16)
    round_into(narrow, value, torch.tensor([0, 1, 0x7FFF, 0xFFFF], dtype=torch.int32))
    assert narrow.isnan().all()


@pytest.mark.parametrize("seed", range(3))
def test_the_bits_are_fair(seed: int) -> None:
    """Of a million, the mean is a half to four standard errors, and neighbours and steps have nothing in common."""
    count = 1 << 18
    chance = Chance(torch.device("cpu"), count)
    draws = [
        torch.cat([chance.bits(key_of(key), start, count).double() for start in range(0, 4 * count, count)]) / 65535
        for key in (seed, seed + 1)
    ]
    bound = 4 / (4 * count) ** 0.5
    assert 0.5 == pytest.approx(draws[0].mean().item(), abs=bound * 12**-0.5)
    for one, other in ((draws[0][1:], draws[0][:-1]), tuple(draws)):
        assert 0 == pytest.approx(torch.corrcoef(torch.stack([one, other]))[0, 1].item(), abs=bound)
