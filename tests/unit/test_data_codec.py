"""The model's own tokenizer: the tokens are those of transformers, and the trained ones are the answers."""

from __future__ import annotations

import pytest

from kernel_launcher.data.rows.examples import Message, Messages, PromptCompletion, Text
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.training.encode import IGNORED, encode_example
from kernel_launcher.errors import InvalidRequest

pytestmark = pytest.mark.torch

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}</s>{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
ALPACA = (
    "{% for m in messages %}{% if m.role == 'user' %}### Instruction:\n{{ m.content }}\n\n"
    "{% elif m.role == 'assistant' %}### Response:\n{{ m.content }}{{ eos_token }}\n\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}### Response:\n{% endif %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "</s>", "<start_of_turn>")
CONTROL += ("<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<think>", "</think>")

ONE = [("user", "What does `abs` do?"), ("assistant", "It gives the absolute value.\n")]
TWO = [*ONE, ("user", "And for -3 🙂?"), ("assistant", "naïve: 3")]
SYSTEM = [("system", "You are brief."), *TWO]


@pytest.fixture(scope="module")
def tokenizer(sample):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(sample.tiny)
    tokenizer.add_tokens([token for token in CONTROL if token not in tokenizer.get_vocab()], special_tokens=True)
    return tokenizer


@pytest.fixture
def codec_of(tokenizer, monkeypatch):
    from kernel_launcher.worker.codec import TransformersCodec

    def make(template):
        monkeypatch.setattr(tokenizer, "chat_template", template)
        return TransformersCodec(tokenizer)

    return make


def chat(turns):
    return Messages(tuple(Message(*turn) for turn in turns))


def runs(row, tokenizer):
    """The text of each run of trained tokens."""
    found = [[]]
    for token, label in zip(row.input_ids, row.labels, strict=True):
        if label == IGNORED:
            found.append([])
        else:
            found[-1].append(token)
    return [tokenizer.decode(run) for run in found if run]


CASES = {
    "chatml": (CHATML, SYSTEM, ["It gives the absolute value.\n<|im_end|>", "naïve: 3<|im_end|>"]),
    "llama 3": (LLAMA3, SYSTEM, ["It gives the absolute value.<|eot_id|>", "naïve: 3<|eot_id|>"]),
    "mistral": (MISTRAL, TWO, [" It gives the absolute value.\n</s>", " naïve: 3</s>"]),
    "gemma": (GEMMA, TWO, ["It gives the absolute value.<end_of_turn>", "naïve: 3<end_of_turn>"]),
    "phi": (PHI, SYSTEM, ["It gives the absolute value.\n<|end|>", "naïve: 3<|end|>"]),
    "alpaca": (ALPACA, TWO, ["It gives the absolute value.\n<|im_end|>", "naïve: 3<|im_end|>"]),
    "thinking": (THINKING, ONE, ["<think>\n\n</think>\n\nIt gives the absolute value.\n<|im_end|>"]),
}


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_transformers_and_the_answers_are_trained(name, codec_of, tokenizer):
    template, turns, expected = CASES[name]
    row = encode_example(chat(turns), codec_of(template), max_length=1000)
    messages = [{"role": role, "content": content} for role, content in turns]
    assert tokenizer.apply_chat_template(messages, tokenize=True).input_ids == row.input_ids
    assert expected == runs(row, tokenizer)


def test_the_models_own_template_is_marked(sample):
    """SmolLM2 writes a system turn of its own before the first user turn."""
    transformers = pytest.importorskip("transformers")
    from kernel_launcher.worker.codec import TransformersCodec

    tokenizer = transformers.AutoTokenizer.from_pretrained(sample.tiny)
    row = encode_example(chat(TWO), TransformersCodec(tokenizer), max_length=1000)
    messages = [{"role": role, "content": content} for role, content in TWO]
    assert tokenizer.apply_chat_template(messages, tokenize=True).input_ids == row.input_ids
    assert ["It gives the absolute value.\n<|im_end|>", "naïve: 3<|im_end|>"] == runs(row, tokenizer)


@pytest.mark.parametrize(
    ("template", "turns", "reason"),
    [
        (THINKING, TWO, "turn 2: the chat template writes"),
        (GEMMA, SYSTEM, "the chat template does not take it: System role not supported."),
        (MISTRAL, SYSTEM, "Only user and assistant roles are supported"),
        ("{{ messages[0].content + 1 }}", ONE, "the chat template does not take it: can only concatenate str"),
        ("{{ messages[0].nothing.here }}", ONE, "the chat template does not take it:"),
    ],
)
def test_what_a_template_does_not_take_is_refused(template, turns, reason, codec_of):
    with pytest.raises(DataRefusal) as caught:
        encode_example(chat(turns), codec_of(template), max_length=1000)
    assert reason in str(caught.value)


def test_a_base_model_takes_plain_text_only(codec_of):
    codec = codec_of(None)
    assert not codec.chat
    with pytest.raises(InvalidRequest, match="no chat template"):
        encode_example(chat(ONE), codec, max_length=1000)
    assert encode_example(PromptCompletion("a", " b"), codec, max_length=1000).trained_tokens


def test_plain_text_is_what_the_tokenizer_makes_of_it(codec_of, tokenizer):
    text = "Once upon  a time\n\n\tnaïve 🙂 <|im_start|>"
    row = encode_example(Text(text), codec_of(CHATML), max_length=1000)
    assert [*tokenizer(text).input_ids, tokenizer.eos_token_id] == row.input_ids == row.labels


def test_a_bos_that_the_tokenizer_adds_is_there_once(tokenizer):
    """As a tokenizer of the Llama family has it: before plain text, and in the template instead for a chat."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    from kernel_launcher.worker.codec import TransformersCodec

    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    bos = ("<|im_start|>", tokenizer.bos_token_id)
    backend.post_processor = TemplateProcessing(single=f"{bos[0]} $A", pair=f"{bos[0]} $A $B", special_tokens=[bos])
    llama = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos[0], eos_token="<|eot_id|>")
    llama.chat_template = LLAMA3
    codec = TransformersCodec(llama)
    assert ((bos[1],), tokenizer.convert_tokens_to_ids("<|eot_id|>")) == (codec.bos, codec.eos)
    for text in ("Once", "<|im_start|>Once"):
        row = encode_example(Text(text), codec, max_length=1000)
        assert [*llama("Once").input_ids, codec.eos] == row.input_ids
    messages = [{"role": role, "content": content} for role, content in ONE]
    row = encode_example(chat(ONE), codec, max_length=1000)
    assert llama.apply_chat_template(messages, tokenize=True).input_ids == row.input_ids


@pytest.mark.parametrize("answer", ["yes", " yes", "  yes", "\n  yes \n\n\t ", "    if a:\n        b"])
def test_the_same_tokens_are_trained_whatever_the_tokenizer_trims(answer, codec_of, tokenizer):
    """A post-processor that trims leaves spaces out of the places of tokens; Llama 3 has one."""
    from tokenizers.processors import ByteLevel
    from transformers import PreTrainedTokenizerFast

    from kernel_launcher.worker.codec import TransformersCodec

    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = ByteLevel(trim_offsets=True)
    trimming = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    trimming.chat_template = CHATML
    example = chat([("user", "a "), ("assistant", answer), ("user", " b"), ("assistant", "c")])
    expected = encode_example(example, codec_of(CHATML), max_length=99)
    assert expected == encode_example(example, TransformersCodec(trimming), max_length=99)
    assert answer in runs(expected, tokenizer)[0]


def test_a_tokenizer_that_keeps_no_places_is_refused():
    from kernel_launcher.worker.codec import TransformersCodec

    class Slow:
        is_fast = False

    with pytest.raises(InvalidRequest, match=r"model.base: its tokenizer \(Slow\) does not say"):
        TransformersCodec(Slow())
