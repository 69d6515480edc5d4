"""Any causal language model is spread: layer by layer, its embedding and its head apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.spec.fields import Method

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torch

WIDTH = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "vocab_size": 32}
SMALL = {**WIDTH, "intermediate_size": 24, "num_key_value_heads": 2, "head_dim": 8}
OLD = {"n_embd": 16, "n_head": 2, "n_layer": 3, "vocab_size": 32, "n_positions": 16}
# Families that name their parts differently, tie weights or not, have experts, or project before the head.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "qwen3": {**SMALL, "tie_word_embeddings": True},
    "gemma2": SMALL,
    "mixtral": {**SMALL, "num_local_experts": 3},
    "olmoe": {**SMALL, "num_experts": 3, "num_experts_per_tok": 2},
    "gpt2": OLD,
    "gptj": {**OLD, "rotary_dim": 4},
    "gpt_neox": {**WIDTH, "intermediate_size": 24},
    "opt": {**WIDTH, "ffn_dim": 24, "word_embed_proj_dim": 8, "max_position_embeddings": 16},
    "phi": {**WIDTH, "intermediate_size": 24},
    "falcon": WIDTH,
    "bloom": {"hidden_size": 16, "n_head": 2, "n_layer": 3, "vocab_size": 32},
    "mamba": {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 3, "vocab_size": 32},
}


@pytest.fixture(scope="class")
def two_ranks() -> Iterator[None]:
    """Rank 0 of 2, without the other."""
    from torch import distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="class")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A group of one, which gathers and reduces like any other."""
    from torch import distributed as dist

    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{store}")
    yield
    dist.destroy_process_group()


def model_of(kind: str, device: str = "meta") -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **CONFIGS[kind]))


@pytest.mark.usefixtures("two_ranks")
class TestTwoRanks:
    @pytest.mark.parametrize("trained", [True, False])
    @pytest.mark.parametrize("kind", CONFIGS)
    def test_every_weight_is_spread(self, kind: str, trained: bool) -> None:
        """Each layer is a unit, so that one at a time is gathered; ties stay ties, and no weight is left out."""
        import torch
        from torch.distributed.fsdp import FSDPModule

        from kernel_launcher.worker.loading import materialize
        from kernel_launcher.worker.precision import Precision
        from kernel_launcher.worker.proof import placements_of
        from kernel_launcher.worker.sharding import decoder_layers, shard

        model, method = model_of(kind), Method(zero_stage=3)
        names = [name for name, _ in model.named_parameters()]
        shard(model, method, Precision.of(method), torch.device("cpu"), trained=trained)
        materialize(model, torch.device("cpu"), offloaded=False)
        assert names == [name for name, _ in model.named_parameters()]
        assert {"Shard(0) of 2": len(names)} == placements_of(model)
        layers = decoder_layers(model)
        assert 3 == len(layers)
        assert all(isinstance(layer, FSDPModule) for layer in layers)
        assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


@pytest.mark.usefixtures("one_rank")
class TestOneRank:
    @pytest.mark.parametrize("stage", [2, 3])
    @pytest.mark.parametrize("kind", CONFIGS)
    def test_a_step_is_that_of_the_plain_model(self, kind: str, stage: int) -> None:
        """TRL's head, checkpointed layers, gradients of every weight: the embedding's and the head's as well."""
        import torch
        from trl.trainer.utils import add_fused_lm_head

        from kernel_launcher.worker.loading import materialize, spread
        from kernel_launcher.worker.precision import Precision
        from kernel_launcher.worker.sharding import shard

        plain, model = model_of(kind, "cpu"), model_of(kind)
        method = Method.model_validate({"zero_stage": stage, "precision": "fp32"})
        for each in (plain, model):
            add_fused_lm_head(each)
        shard(model, method, Precision.of(method), torch.device("cpu"))
        materialize(model, torch.device("cpu"), offloaded=False)
        spread(model, plain, torch.device("cpu"))
        ids = torch.arange(1, 17).view(2, 8)
        for each in (plain, model):
            each.activation_checkpointing_enable({"use_reentrant": False})
            each.eval()  # no dropout
            each(input_ids=ids, labels=ids, fused_lm_head=True).loss.backward()
        for (name, expected), found in zip(plain.named_parameters(), model.parameters(), strict=True):
            assert (expected.grad is None) == (found.grad is None), name
            if expected.grad is not None:
                torch.testing.assert_close(found.grad.full_tensor(), expected.grad, msg=name)
