"""The base model: what is refused before it is trained, and what is decided about it."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.data.chat.templates import read_template, templates_in
from kernel_launcher.worker.base import Base, choose_pad_token, load_model, load_tokenizer
from kernel_launcher.worker.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = pytest.mark.torch


@pytest.fixture
def base(tmp_path: Path, sample: Sample) -> Base:
    """A copy of the tiny model, to break."""
    folder = tmp_path / "model"
    shutil.copytree(sample.tiny, folder)
    return Base(name=str(folder), revision=None, folder=folder, trust_remote_code=False)


def job(base: str) -> Any:
    """As much of an assignment as finding a folder needs."""
    model = SimpleNamespace(base=base, revision=None, trust_remote_code=False)
    return SimpleNamespace(spec=SimpleNamespace(model=model), rank=SimpleNamespace(is_first=True))


def on_cpu() -> tuple[Any, Any]:
    import torch

    return torch.bfloat16, torch.device("cpu")


def test_a_model_that_lacks_weights_is_refused(base: Base) -> None:
    """transformers would start them at random and train on."""
    from safetensors.torch import load_file, save_file

    path = base.folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lacks 1 weights .* model.layers.1.mlp.up_proj.weight"):
        load_model(base, *on_cpu())


def test_weights_of_another_shape_are_named_with_both(base: Base) -> None:
    """transformers prints a table into the log, and raises a pointer to it."""
    from safetensors.torch import load_file, save_file

    path, name = base.folder / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    weights = load_file(path)
    rows, columns = weights[name].shape
    weights[name] = weights[name][:10].clone()
    save_file(weights, path, metadata={"format": "pt"})
    expected = rf"has 1 weights that do not fit .*: {name} is 10 x {columns} in the file and {rows} x {columns} in"
    with pytest.raises(ModelLoadError, match=expected):
        load_model(base, *on_cpu())


TEMPLATE = "{{ messages }}"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"chat_template.jinja": TEMPLATE},
        {"chat_template.json": json.dumps({"chat_template": TEMPLATE})},
        {"additional_chat_templates/rag.jinja": TEMPLATE},
        {"tokenizer_config.json": {"chat_template": TEMPLATE}},
        {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": TEMPLATE}]}},
        {"tokenizer_config.json": {"chat_template": None}},
    ],
)
def test_a_chat_template_is_found_where_transformers_finds_it(base: Base, files: dict[str, Any]) -> None:
    """The cell tells it from the files, the job from the tokenizer: they agree."""
    (base.folder / "chat_template.jinja").unlink()
    for name, content in files.items():
        path = base.folder / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, dict):
            content = json.dumps(json.loads(path.read_text()) | content)  # noqa: PLW2901
        path.write_text(content)
    assert bool(load_tokenizer(base).chat_template) == bool(templates_in(base.folder))


def test_a_named_chat_template_takes_the_place_of_the_models_own(base: Base) -> None:
    """In the tokenizer that is saved, too: it carries what the model was trained with."""
    own = load_tokenizer(base).chat_template
    tokenizer = load_tokenizer(base, "llama3")
    assert "<|start_header_id|>" in tokenizer.chat_template
    tokenizer.save_pretrained(base.folder / "saved")
    assert read_template("llama3") == (base.folder / "saved" / "chat_template.jinja").read_text()
    assert own == load_tokenizer(base).chat_template


def test_generation_stops_where_the_chat_template_ends_an_answer(base: Base) -> None:
    """Its end of turn is added to the model's own stop tokens, once, if the tokenizer knows it as one."""
    from transformers import GenerationConfig

    from kernel_launcher.worker.codec import stop_at_end_of_turn

    tokenizer = load_tokenizer(base, "chatml")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for known, expected in ((None, [end]), (7, [7, end]), ([7, 8], [7, 8, end]), (end, end)):
        config = GenerationConfig(eos_token_id=known)
        assert (expected != known) == stop_at_end_of_turn(config, tokenizer)
        assert expected == config.eos_token_id
    config = GenerationConfig(eos_token_id=7)
    assert not stop_at_end_of_turn(config, load_tokenizer(base, "llama3"))
    assert 7 == config.eos_token_id
    assert not stop_at_end_of_turn(None, tokenizer)


def test_a_truncated_file_is_named_with_both_sizes(base: Base) -> None:
    """Before anything is loaded."""
    path = base.folder / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 1000)
    with pytest.raises(ModelLoadError, match=f"{size:,} bytes and has {size - 1000:,}"):
        Base.find(job(str(base.folder)), reporter=None)  # type: ignore[arg-type]


def test_a_path_is_never_asked_of_the_hub(tmp_path: Path) -> None:
    """A folder that has gone since the job was checked is a missing folder."""
    with pytest.raises(ModelLoadError, match="there is no folder"):
        Base.find(job(str(tmp_path / "gone")), reporter=None)  # type: ignore[arg-type]


def test_a_missing_tokenizer_is_the_models_fault(base: Base) -> None:
    """transformers would make one without tokens, and every row would be empty."""
    for path in base.folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelLoadError, match="has no tokenizer"):
        load_tokenizer(base)


@pytest.mark.parametrize(
    ("expected", "pad", "eos", "added"),
    [
        ("<own>", "<own>", "</s>", ["<pad>"]),
        ("<|finetune_right_pad_id|>", None, "</s>", ["<|finetune_right_pad_id|>", "</s>"]),
        ("</s>", None, "</s>", ["</s>", "<s>"]),
        ("<|endoftext|>", None, "<|endoftext|>", ["<|endoftext|>"]),
    ],
)
def test_padding_takes_a_token_that_the_model_has(expected: str, pad: str | None, eos: str, added: list[str]) -> None:
    """Its own, one kept for it, or else the end token; never a new one."""
    tokenizer = SimpleNamespace(pad_token=pad, eos_token=eos, get_added_vocab=lambda: dict.fromkeys(added, 0))
    assert expected == choose_pad_token(tokenizer)


def test_a_tokenizer_without_any_such_token_is_refused() -> None:
    """Rows of different lengths could not be put together."""
    with pytest.raises(ModelLoadError, match="neither a pad token nor an end token"):
        choose_pad_token(SimpleNamespace(pad_token=None, eos_token=None, get_added_vocab=dict))
