"""AdamW for weights in bfloat16 alone: every update counts on average, and no matter who holds which part."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import distributed as dist  # noqa: E402 - torch may be missing
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from kernel_launcher.planner.workload import STOCHASTIC_CHUNK  # noqa: E402
from kernel_launcher.spec.fields import Method  # noqa: E402
from kernel_launcher.worker.optimizer import StochasticAdamW, own_optimizer  # noqa: E402

pytestmark = pytest.mark.torch
LR = 2e-5
SHAPE = (7, 600)


def weight(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.Parameter((torch.randn(shape, generator=generator) * 0.05).to(dtype))


def gradient(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 1e-3


def steps(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        parameter.grad = gradient(*parameter.shape, seed=number + 1).to(parameter.dtype)
        optimizer.step()


def trained(count: int = 3, **settings: object) -> torch.Tensor:
    parameter = weight(*SHAPE)
    steps(StochasticAdamW([parameter], lr=LR, **settings), parameter, count)
    return parameter.detach()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_in_float32_it_is_torchs_adamw(weight_decay: float) -> None:
    """Nothing is rounded there: ten steps give the same weights to 1e-6."""
    ours, theirs = weight(40, 30, dtype=torch.float32), weight(40, 30, dtype=torch.float32)
    steps(StochasticAdamW([ours], lr=1e-3, weight_decay=weight_decay), ours, 10)
    steps(torch.optim.AdamW([theirs], lr=1e-3, weight_decay=weight_decay), theirs, 10)
    torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-7)


def test_a_weight_lands_on_one_of_its_two_neighbours() -> None:
    """One step is the float32 step, rounded up or down, and in bfloat16's own format."""
    ours, exact = weight(*SHAPE), torch.nn.Parameter(weight(*SHAPE).float())
    exact.grad = gradient(*SHAPE).bfloat16().float()
    torch.optim.AdamW([exact], lr=LR, weight_decay=0.01).step()
    steps(StochasticAdamW([ours], lr=LR), ours, 1)
    step = 2.0 ** (torch.frexp(exact.detach()).exponent - 8)
    assert ((ours.float() - exact).abs() < step).all()
    assert torch.bfloat16 == ours.dtype


def test_small_updates_add_up() -> None:
    """Weights walk as far as in float32, on average; rounded to nearest they hardly move."""
    constant = torch.full((64, 1000), 1e-3)
    moved = {}
    for name, cls, dtype in (
        ("float32", torch.optim.AdamW, torch.float32),
        ("nearest", torch.optim.AdamW, torch.bfloat16),
        ("by chance", StochasticAdamW, torch.bfloat16),
    ):
        parameter = torch.nn.Parameter(torch.full((64, 1000), 0.11).to(torch.bfloat16).to(dtype))
        before = parameter.detach().double().mean()
        optimizer = cls([parameter], lr=LR, weight_decay=0.0)
        for _ in range(20):
            parameter.grad = constant.to(dtype)
            optimizer.step()
        moved[name] = float(parameter.detach().double().mean() - before)
    assert 0 == moved["nearest"]
    assert moved["float32"] == pytest.approx(moved["by chance"], rel=0.03)


def test_the_second_moment_follows_the_gradients() -> None:
    """It moves by a thousandth a step, which rounding to nearest stops at a third of the way."""
    parameter = torch.nn.Parameter(torch.zeros(64, 64, dtype=torch.bfloat16))
    optimizer = StochasticAdamW([parameter], lr=0.0)
    for _ in range(1500):
        parameter.grad = torch.full((64, 64), 1e-2, dtype=torch.bfloat16)
        optimizer.step()
    squared = float(parameter.grad[0, 0]) ** 2
    second = optimizer.state[parameter]["exp_avg_sq"].double().mean().item()
    assert squared * (1 - 0.999**1500) == pytest.approx(second, rel=0.01)


def test_eight_bytes_a_parameter() -> None:
    """Weight, gradient and two moments in bfloat16, and nothing else but a step count."""
    parameter = weight(*SHAPE)
    optimizer = StochasticAdamW([parameter], lr=LR)
    steps(optimizer, parameter, 1)
    state = optimizer.state[parameter]
    held = [parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]]
    assert 8 * parameter.numel() == sum(tensor.numel() * tensor.element_size() for tensor in held)
    assert {"step", "exp_avg", "exp_avg_sq"} == set(state)


def test_a_seed_repeats_and_another_differs() -> None:
    assert torch.equal(trained(seed=1), trained(seed=1))
    assert not torch.equal(trained(seed=1), trained(seed=2))


def test_twins_round_apart() -> None:
    """Two parameters alike, and two steps alike, have bits of their own."""
    twins = [weight(*SHAPE), weight(*SHAPE)]
    optimizer = StochasticAdamW(twins, lr=LR)
    for twin in twins:
        twin.grad = gradient(*SHAPE).bfloat16()
    optimizer.step()
    assert not torch.equal(*twins)


def test_saved_states_go_on_as_if_nothing_had_been() -> None:
    """Two steps, a save, and two more give what four steps give."""
    parameter = weight(*SHAPE)
    first = StochasticAdamW([parameter], lr=LR, seed=5)
    steps(first, parameter, 2)
    second = StochasticAdamW([parameter], lr=LR)
    second.load_state_dict(first.state_dict())
    steps(second, parameter, 2, first=2)
    assert torch.equal(trained(4, seed=5), parameter.detach())


@pytest.mark.parametrize("chunk", [97, 600, 10_000])
def test_the_size_of_a_chunk_does_not_show(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    expected = trained()
    monkeypatch.setitem(STOCHASTIC_CHUNK, "cpu", chunk)
    assert torch.equal(expected, trained())


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_shards_round_as_the_whole_does(ranks: int) -> None:
    """The parts of all ranks of FSDP2, put together, are the weight that one rank computes."""
    whole = trained()
    parts = []
    for rank in range(ranks):
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        try:
            mesh = init_device_mesh("cpu", (ranks,))
            own = _own(weight(*SHAPE).detach(), rank, ranks)
            parameter = torch.nn.Parameter(_sharded(own, mesh))
            optimizer = StochasticAdamW([parameter], lr=LR)
            for number in range(3):
                full = gradient(*SHAPE, seed=number + 1).bfloat16()
                parameter.grad = _sharded(_own(full, rank, ranks), mesh)
                optimizer.step()
            assert isinstance(optimizer.state[parameter]["exp_avg"], DTensor)
            parts.append(parameter.detach().to_local().clone())
        finally:
            dist.destroy_process_group()
    assert torch.equal(whole, torch.cat(parts))


def test_other_shards_are_refused() -> None:
    """Columns have no place to count from, so nothing is rounded wrongly in silence."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        columns = DTensor.from_local(torch.zeros(4, 4, dtype=torch.bfloat16), mesh, [Shard(1)], run_check=False)
        copies = DTensor.from_local(torch.zeros(4, 4, dtype=torch.bfloat16), mesh, [Replicate()], run_check=False)
        for tensor in (columns, copies):
            tensor.grad = torch.ones_like(tensor)
        StochasticAdamW([copies], lr=LR).step()
        with pytest.raises(ValueError, match="first dimension"):
            StochasticAdamW([columns], lr=LR).step()
    finally:
        dist.destroy_process_group()


def _own(full: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """The rows of one rank, as torch.chunk deals them out: the last ranks may get none."""
    dealt = full.chunk(ranks)
    return dealt[rank].clone() if rank < len(dealt) else full[:0].clone()


def _sharded(own: torch.Tensor, mesh: object) -> DTensor:
    return DTensor.from_local(own, mesh, [Shard(0)], run_check=False, shape=torch.Size(SHAPE), stride=(SHAPE[1], 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_so(value: float) -> None:
    """A diverged run must not look healthy: nothing turns into a number."""
    parameter = weight(64, 64)
    with torch.no_grad():
        parameter[0].fill_(value)
    steps(StochasticAdamW([parameter], lr=LR), parameter, 3)
    assert not parameter[0].isfinite().any()
    assert parameter[1:].isfinite().all()


@pytest.mark.parametrize(
    ("method", "ours"),
    [
        ({}, True),
        ({"optim": "adamw_torch"}, True),
        ({"optim": "sgd"}, False),
        ({"lora_rank": 4}, False),
        ({"precision": "bf16_mixed"}, False),
        ({"precision": "fp32"}, False),
    ],
)
def test_it_is_for_weights_in_bf16_alone(method: dict[str, object], ours: bool) -> None:
    """Adapters and masters are float32, where the Trainer's own optimizer is right."""
    chosen = own_optimizer(Method(learning_rate=1e-4, weight_decay=0.2, seed=9, **method))
    expected = (StochasticAdamW, {"lr": 1e-4, "weight_decay": 0.2, "seed": 9}) if ours else None
    assert expected == chosen
