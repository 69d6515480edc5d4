"""What the machine and a model say of themselves."""

from __future__ import annotations

import json
import os
import tracemalloc
from typing import Any

import pytest

from kernel_launcher.facts import catalogue, hub_facts, read_model_facts
from kernel_launcher.facts.model import BrokenModelError, read_config, safetensors_shapes, weight_files
from kernel_launcher.facts.shape import read_shape
from kernel_launcher.planner.shape import ModelShape
from tests.hub import COMMIT, REPOSITORY, hub

# Models on disk


def safetensors(tensors: dict[str, list[int]], *, size: int = 2) -> bytes:
    """A file of zeros in the format, ``size`` bytes a number."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        count = size
        for length in shape:
            count *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + count]}
        end += count
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


@pytest.fixture
def model(tmp_path):
    """A folder with a config, and no weights yet."""
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    return tmp_path


def test_parameters_are_counted_from_the_headers(model):
    """Every tensor counts as it is stored, also a tied embedding that is there a second time."""
    tensors = {
        "model.embed_tokens.weight": [100, 8],
        "lm_head.weight": [100, 8],
        "model.layers.0.self_attn.q_proj.weight": [8, 8],
        "model.layers.1.self_attn.q_proj.weight": [8, 8],
        "model.layers.0.self_attn.q_proj.bias": [8],
        "model.norm.weight": [8],
    }
    (model / "model.safetensors").write_bytes(safetensors(tensors))
    facts = read_model_facts(model)
    assert 2 * 800 + 2 * 64 + 8 + 8 == facts.param_count
    assert ("safetensors headers", 512) == (facts.source, facts.max_length)
    assert 32 == facts.linears["q_proj"]
    assert 4 * 32 == facts.lora_param_count(4, ["q_proj", "no_such_layer"])


def test_shards_are_counted_through_their_index(model):
    """The files of the index count, each once; others that lie around do not."""
    (model / "a.safetensors").write_bytes(safetensors({"x.weight": [4, 4], "y.weight": [2]}))
    (model / "b.safetensors").write_bytes(safetensors({"z.weight": [3, 3]}))
    (model / "old.safetensors").write_bytes(safetensors({"x.weight": [9, 9]}))
    index = {"weight_map": {"x.weight": "a.safetensors", "y.weight": "a.safetensors", "z.weight": "b.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert 16 + 2 + 9 == read_model_facts(model).param_count


def test_only_headers_are_read(model):
    """A model of a terabyte is looked at: its weights are a hole in the file here, and are never touched."""
    text = json.dumps({"w": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
    path = model / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + (1 << 40))
    assert 1 << 38 == read_model_facts(model).param_count


HEADER = {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}


def with_header(text: bytes, data: bytes = b"\0\0\0\0", length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


BROKEN = {
    "empty": b"",
    "shorter than its length field": b"\x02\0\0",
    "longer header than file": with_header(b"{}", length=1000),
    "100 GB of header": with_header(b"{}", length=100 * 10**9),
    "as much header as eight bytes can say": b"\xff" * 8 + b"{}",
    "no JSON": with_header(b"not json"),
    "no UTF-8": with_header(b'{"\xff": 1}'),
    "a list": with_header(b"[]"),
    "no shape": with_header(json.dumps({"w": {"data_offsets": [0, 4]}}).encode()),
    "no offsets": with_header(json.dumps({"w": {"shape": [1]}}).encode()),
    "one offset": with_header(json.dumps({"w": {"shape": [1], "data_offsets": [0]}}).encode()),
    "infinite shape": with_header(b'{"w": {"shape": [Infinity], "data_offsets": [0, 4]}}'),
    "shape of text": with_header(b'{"w": {"shape": ["x"], "data_offsets": [0, 4]}}'),
    "nested too deep": with_header(b"[" * 100_000),
    "half of the data": with_header(json.dumps(HEADER).encode(), b"\0\0"),
    "more than the data": with_header(json.dumps(HEADER).encode(), b"\0" * 5),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named(case, model):
    """A file that lies about its size or its header is refused by name, whatever is wrong with it."""
    (model / "model.safetensors").write_bytes(BROKEN[case])
    with pytest.raises(BrokenModelError, match=r"model\.safetensors"):
        read_model_facts(model)


def test_a_lying_length_costs_no_memory(model):
    """The length field of a small file says 99 MB: it is held against the file's size before anything is read."""
    path = model / "model.safetensors"
    path.write_bytes(with_header(b"{}", length=99 * 10**6))
    tracemalloc.start()
    with pytest.raises(BrokenModelError, match=r"says its header has 99,000,000 bytes; the file has 14"):
        safetensors_shapes(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"weight_map": {"w": "missing.safetensors"}}, r"missing\.safetensors, which is not in"),
        ({"weight_map": {"w": 5}}, "names 5"),
        ({"weight_map": ["a"]}, "is not a safetensors index"),
        ({}, "is not a safetensors index"),
        ([], "is not a safetensors index"),
        ("{", "is not a safetensors index"),
    ],
)
def test_an_index_that_does_not_hold_is_refused(index, said, model):
    """A shard that is missing, or an index that is none, is said before anything starts."""
    text = index if isinstance(index, str) else json.dumps(index)
    (model / "model.safetensors.index.json").write_text(text)
    with pytest.raises(BrokenModelError, match=said):
        weight_files(model)


@pytest.mark.parametrize("config", ["", "[]", "{", "5", "\ufeff[", "[" * 100_000])
def test_a_config_that_is_none_is_refused(config, tmp_path):
    """A config.json that is missing, broken or no object is said."""
    with pytest.raises(BrokenModelError, match=r"has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(BrokenModelError, match=r"config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": "many"}, None),
        ({"max_position_embeddings": -1}, None),
        ({"text_config": None}, None),
        ({}, None),
    ],
)
def test_the_length_limit_is_the_configs(config, limit, model):
    """The longest sequence is what the config says, also inside a multimodal model's text part."""
    (model / "config.json").write_text(json.dumps(config))
    assert limit == read_model_facts(model).max_length


def test_what_cannot_be_counted_is_unknown_and_says_so(model):
    """No safetensors and no known layers: unknown is a value. So is a model that is not here yet."""
    assert (None, "unknown") == (read_model_facts(model).param_count, read_model_facts(model).source)
    assert "unknown until the model is downloaded" == read_model_facts(None).source


CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}
# Embedding and final norm; in a layer q and o, k and v, the MLP, two norms and the norms of heads.
COUNT = 1000 * 64 + 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64 + 2 * 16)


def test_quantised_weights_are_counted_from_the_config(model):
    """The headers of packed weights hold bytes, not parameters; the config has the shape."""
    (model / "model.safetensors").write_bytes(safetensors({"w": [2, 2]}, size=1))
    packed = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (model / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": packed}))
    facts = read_model_facts(model)
    assert (COUNT, "by formula, from config.json") == (facts.param_count, facts.source)
    assert ("bitsandbytes, 4 bits", True) == (facts.quantized, facts.tied)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model_type": "qwen3_5_text"}, "linear attention"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear_attention"),
        ({"num_experts": 8}, "mixtures of experts"),
        ({"vision_config": {"depth": 3}}, "vision"),
        ({"model_type": "mamba"}, "type mamba"),
        ({"model_type": None}, "type None"),
        ({"model_type": ["qwen3"]}, "type None"),
        ({"hidden_size": "many"}, "no usable hidden_size"),
        ({"vocab_size": -1}, "no usable vocab_size"),
        ({"num_hidden_layers": True}, "no usable num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "no usable num_hidden_layers"),
        ({"num_key_value_heads": "8", "head_dim": 0, "rope_parameters": 1, "partial_rotary_factor": "x"}, None),
        ({"layer_types": [5, None]}, None),
        ({"layer_types": 5}, None),
        ({"text_config": 5}, None),
    ],
)
def test_a_shape_is_known_or_it_is_said_why_not(change, why):
    """Layers that the memory formula does not know are no shape; what is wrong with a config is said, not raised."""
    shape = read_shape(CONFIG | change)
    assert (why is None) == isinstance(shape, ModelShape)
    assert why is None or why in shape.reason


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("mistral", {"sliding_window": 64}, (64, 2)),
        ("mistral", {"sliding_window": None}, (None, 0)),
        ("qwen3", {"sliding_window": 64}, (None, 0)),
        ("olmo3", {"sliding_window": 64, "num_hidden_layers": 8}, (64, 6)),
        ("gemma3_text", {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}, (64, 1)),
    ],
)
def test_sliding_layers_are_counted(kind, more, expected):
    """By the list of layers, or the family's pattern; Qwen slides only where it is told to."""
    shape = read_shape(CONFIG | {"model_type": kind} | more)
    assert expected == (shape.window, shape.sliding_layers)


# The catalogue


def test_counts_of_the_catalogue():
    """As the models' makers and the hub give them; a tuned model has its base's."""
    known = {
        "Qwen/Qwen3-0.6B": 751_632_384,
        "Qwen/Qwen3-1.7B": 2_031_739_904,
        "Qwen/Qwen3-4B": 4_022_468_096,
        "Qwen/Qwen3-8B": 8_190_735_360,
        "Qwen/Qwen3-32B": 32_762_123_264,
        "Qwen/Qwen3-30B-A3B": 30_532_122_624,
        "meta-llama/Llama-3.1-8B": 8_030_261_248,
        "meta-llama/Llama-3.2-1B": 1_235_814_400,
        "HuggingFaceTB/SmolLM2-135M": 134_515_008,
        "google/gemma-3-1b-it": 999_885_952,
        "mistralai/Mistral-7B-v0.3": 7_248_023_552,
        "microsoft/phi-4": 14_659_507_200,
        "allenai/OLMo-2-1124-7B": 7_298_617_344,
    }
    assert known == {name: catalogue.facts_of(name).param_count for name in known}
    assert catalogue.facts_of("Qwen/Qwen3-4B") == catalogue.facts_of("qwen/qwen3-4b-Instruct-2507")
    assert catalogue.facts_of("owner/Qwen3-4B") is None


def test_the_formula_agrees_with_the_counts_that_are_known():
    """Where a count is of the hub, it is the formula's, or that with a tied embedding stored twice."""
    for name in catalogue.model_ids():
        facts = catalogue.facts_of(name)
        assert facts.source.startswith("catalogue: ")
        if isinstance(facts.shape, ModelShape):
            twice = facts.shape.embedding_params if facts.tied else 0
            assert facts.param_count in (facts.shape.params, facts.shape.params + twice)
        else:
            assert facts.shape.reason


# The hub


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A hub's cache with one model, its config alone."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "cache" / f"models--{REPOSITORY.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG | {"dtype": "bfloat16"}))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return snapshot


def test_a_model_in_the_hubs_cache_is_read_there(cache):
    """Whole, or as far as it is there: headers, the index's bytes, or the config alone."""
    assert (COUNT, "by formula, from config.json, in the hub's cache") == (
        hub_facts(REPOSITORY).param_count, hub_facts(REPOSITORY, COMMIT).source
    )  # fmt: skip
    index = {"weight_map": {"w": "a.safetensors"}, "metadata": {"total_size": 2000}}
    (cache / "model.safetensors.index.json").write_text(json.dumps(index))
    assert (1000, "safetensors index, in the hub's cache") == (
        hub_facts(REPOSITORY).param_count, hub_facts(REPOSITORY).source
    )  # fmt: skip
    (cache / "a.safetensors").write_bytes(safetensors({"w": [3, 3]}))
    assert 9 == hub_facts(REPOSITORY).param_count
    (cache / "a.safetensors").write_bytes(safetensors({"w": [3, 3]})[:-1])
    with pytest.raises(BrokenModelError):
        hub_facts(REPOSITORY)
    for outside in ("../../..", "other", "\0"):
        assert hub_facts(REPOSITORY, outside).param_count is None


def test_the_hub_is_asked_only_when_told_to(tmp_path, monkeypatch):
    """Without asking there is no network; asked, it gives count and shape; silent or absent, unknown is a value."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with hub({"config.json": json.dumps(CONFIG).encode()}, safetensors={"total": 12_345}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert hub_facts(REPOSITORY).param_count is None
        facts = hub_facts(REPOSITORY, ask=True)
        assert (12_345, "the hub's metadata") == (facts.param_count, facts.source)
        assert isinstance(facts.shape, ModelShape)
        assert "unknown: the hub did not tell within 1 s" == hub_facts("team/gated", ask=True).source
        assert "catalogue: " in hub_facts("Qwen/Qwen3-4B", ask=True).source
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert hub_facts(REPOSITORY, ask=True).param_count is None
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert hub_facts(REPOSITORY, ask=True).param_count is None
