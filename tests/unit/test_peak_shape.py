"""From a config.json to the shape of a model, or to an honest shrug."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.planner.peak import peak
from kernel_launcher.planner.shape import ModelShape, Unknown, from_config
from kernel_launcher.planner.workload import Workload
from tests.unit.peak_rows import DATA, shape

CONFIGS: dict[str, dict[str, Any]] = json.loads((DATA / "tracker_models.json").read_text())


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("Qwen3-0.6B", 596_049_920),
        ("Qwen3-1.7B", 1_720_574_976),
        ("Qwen3-4B", 4_022_468_096),
        ("Qwen3-8B", 8_190_735_360),
        ("Qwen3-14B", 14_768_307_200),
        ("Qwen3-32B", 32_762_123_264),
        ("Llama-3.2-1B", 1_235_814_400),
        ("Llama-3.1-8B", 8_030_261_248),
        ("SmolLM2-135M", 134_515_008),
        ("Gemma-3-1B", 999_885_952),
        ("Mistral-7B", 7_248_023_552),
        ("OLMo-2-1B", 1_484_916_736),
        ("Phi-4-mini", 3_836_021_760),
    ],
)
def test_the_parameters_of_a_public_model(model: str, params: int):
    """The formula counts what the model's card says, tied weights once."""
    assert params == shape(model).params


@pytest.mark.torch
@pytest.mark.parametrize("model", CONFIGS)
def test_transformers_counts_the_same(model: str):
    """Layers and what is around them, as transformers builds them."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGS[model] | {"num_hidden_layers": 2}))
    assert sum(p.numel() for p in built.parameters()) == shape(model, 2).params


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_experts": 128}, "its layers are mixtures of experts"),
        ({"num_local_experts": 8}, "its layers are mixtures of experts"),
        ({"vision_config": {"depth": 27}}, "it has a vision tower"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "it has layers of kind linear_attention"),
        ({"model_type": "mamba2"}, "models of type mamba2 are not known"),
        ({"model_type": None}, "models of type None are not known"),
        ({"hidden_size": "wide"}, "its config.json has no usable hidden_size"),
        ({"num_hidden_layers": 0}, "its config.json has no usable num_hidden_layers"),
        ({"num_key_value_heads": 5}, "its config.json has no usable num_key_value_heads or head_dim"),
    ],
)
def test_what_cannot_be_said(change: dict[str, Any], reason: str):
    """A model that the formula does not know gets a reason, and its peak, too."""
    found = from_config(CONFIGS["Qwen3-4B"] | change)
    assert Unknown(reason) == found
    assert Unknown(reason) == peak(Workload(zero_stage=0, world_size=1, micro_batch_size=1, length=8), found)


@pytest.mark.parametrize(
    ("model", "change", "window", "sliding"),
    [
        ("Gemma-3-1B", {}, 512, 22),
        ("Gemma-3-1B", {"layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 23}, 512, 3),
        ("Qwen3-4B", {"sliding_window": 4096, "use_sliding_window": False}, None, 0),
        ("Mistral-7B", {}, None, 0),
        ("Mistral-7B", {"sliding_window": 4096}, 4096, 32),
    ],
)
def test_windows(model: str, change: dict[str, Any], window: int | None, sliding: int):
    """Which layers look through a window."""
    found = from_config(CONFIGS[model] | change)
    assert isinstance(found, ModelShape)
    assert (window, sliding) == (found.window, found.sliding_layers)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
known_keys = sorted({key for config in CONFIGS.values() for key in config} | {"layer_types", "rope_parameters"})


@given(st.sampled_from(sorted(CONFIGS)), st.dictionaries(st.sampled_from(known_keys), json_values, max_size=4))
def test_any_config_gives_a_shape_or_a_reason(model: str, change: dict[str, Any]):
    """Nothing in a config.json raises."""
    assert isinstance(from_config(CONFIGS[model] | change), ModelShape | Unknown)
