"""A tokenizer without torch is transformers' own: the same text, ids and places."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from kernel_launcher.data.chat.pieces import bytes_named
from kernel_launcher.data.chat.templates import template_names
from kernel_launcher.data.chat.tokenizer import open_codec
from kernel_launcher.data.rows.examples import Message
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.errors import InvalidRequest
from tests.unit.template_table import CONVERSATIONS, TABLE
from tests.unit.template_toys import CONTROL, source, tokenizer_json

TEXT = ["Hi there, what is  it?", "So it is.\n\n\tnaïve café 🙂", "if a:\n    return b", "user assistant system"]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Model folders with one tokenizer each, and any template."""

    def make(kind="byte level", template=None, config=None, **files):
        folder = tmp_path_factory.mktemp("model")
        (folder / "tokenizer.json").write_text(BACKENDS[kind]())
        settings = {"tokenizer_class": "TokenizersBackend", "bos_token": "<s>", "eos_token": "</s>", **(config or {})}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if template is not None:
            files["chat_template.jinja"] = template
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        return folder

    return make


def _trained(model, trainer, *, normalizer=None, pre=None, post=None):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer.to_str()


def _bos(tokenizer):
    bos = ("<s>", tokenizer.token_to_id("<s>"))
    return processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[bos])


def _bos_and_trim(tokenizer):
    return processors.Sequence([processors.ByteLevel(trim_offsets=True), _bos(tokenizer)])


@cache
def _llama3():
    """Byte level after a pattern, with a BOS, and places that are trimmed."""
    pattern = pre_tokenizers.Split(Regex(r"\p{L}+| ?[^\s\p{L}]+|\s+"), behavior="isolated")
    pre = pre_tokenizers.Sequence([pattern, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return _trained(models.BPE(), trainer, normalizer=normalizers.NFC(), pre=pre, post=_bos_and_trim)


@cache
def _llama2():
    """Pieces with their space before them, unknown characters as bytes, and a BOS."""
    pre = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", *bytes_])
    return _trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainer, pre=pre, post=_bos)


@cache
def _unigram():
    pre = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=80, unk_token="<unk>", special_tokens=["<unk>"])
    return _trained(models.Unigram(), trainer, normalizer=normalizers.Strip(), pre=pre)


@cache
def _wordpiece():
    """It lowers and strips: its places are those of the text before that."""
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"])
    normalizer = normalizers.BertNormalizer()
    return _trained(
        models.WordPiece(unk_token="[UNK]"), trainer, normalizer=normalizer, pre=pre_tokenizers.BertPreTokenizer()
    )


BACKENDS = {
    "byte level": tokenizer_json,
    "llama 3": _llama3,
    "llama 2": _llama2,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
}


def messages_of(turns):
    return [{"role": role, "content": content} for role, content in turns]


def turns_of(turns):
    return tuple(Message(*turn) for turn in turns)


@pytest.fixture(scope="module")
def pairs(folder_of):
    """Each tokenizer twice: without torch, and by transformers."""
    transformers = pytest.importorskip("transformers")
    folders = {kind: folder_of(kind, source("chatml")) for kind in BACKENDS}
    return {
        kind: (open_codec(folder), transformers.AutoTokenizer.from_pretrained(folder))
        for kind, folder in folders.items()
    }


@pytest.mark.torch
@pytest.mark.parametrize("kind", BACKENDS)
def test_texts_have_the_ids_places_and_bos_of_transformers(kind, pairs):
    codec, theirs = pairs[kind]

    @settings(deadline=None, max_examples=60)
    @given(
        st.text(st.sampled_from("ab <|>\n\té🙂SoUser.") | st.characters(codec="utf-8"), max_size=30)
        | st.sampled_from(TEXT)
    )
    def same(text):
        for case in (text, f" {text}", f"<|im_start|>{text}<|im_end|>\n", f"{text} </s>"):
            (mine,) = codec.encode([case])
            assert theirs(case, add_special_tokens=False).input_ids == mine.ids
            assert theirs(case).input_ids == [*codec.bos, *mine.ids]
            if kind != "llama 3":  # there transformers' places leave out white space, for which ours are needed
                offsets = theirs(case, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
                assert offsets == mine.offsets

    same()
    assert theirs.eos_token_id == codec.eos
    assert theirs.get_added_vocab() == dict(codec.control)
    assert ((theirs.bos_token_id,) if kind.startswith("llama") else ()) == codec.bos


@pytest.mark.torch
@pytest.mark.parametrize("name", TABLE)
def test_templates_are_written_as_by_transformers(name, folder_of):
    """With and without a generation prompt, with each special token, and the same turns are refused."""
    transformers = pytest.importorskip("transformers")
    config = {"bos_token": TABLE[name].bos, "eos_token": TABLE[name].eos}
    folder = folder_of(template=source(name), config=config)
    codec, theirs = open_codec(folder), transformers.AutoTokenizer.from_pretrained(folder)
    strange = (("user", "a\n {{ b }} {% c %}"), ("tool", '{"é": "<b>"}'), ("assistant", " <think>x</think> y\n"))
    for turns in (*CONVERSATIONS, strange, strange[1:], (("assistant", "Hi"),)):
        for prompted in (True, False):
            try:
                expected = theirs.apply_chat_template(
                    messages_of(turns), tokenize=False, add_generation_prompt=prompted
                )
            except (ValueError, TypeError, transformers.utils.chat_template_utils.jinja2.TemplateError):
                with pytest.raises(DataRefusal):
                    codec.render(turns_of(turns), add_generation_prompt=prompted)
            else:
                assert expected == codec.render(turns_of(turns), add_generation_prompt=prompted)
                ids = theirs.apply_chat_template(messages_of(turns), add_generation_prompt=prompted).input_ids
                assert ids == codec.encode([expected])[0].ids


ODD = """
{%- set ns = namespace(n=0, seen=[]) %}
{%- macro head(role) %}[{{ role | upper }}]{% endmacro %}
{% for m in messages %}
    {% if loop.index > 3 %}{% break %}{% endif %}
    {% if m.role == 'tool' %}{% continue %}{% endif %}
    {%- set ns.n = ns.n + 1 %}
{{ head(m.role) }} {{ m | tojson }} {{ m.content | tojson(indent=2) }} {{ dict(a=ns.n)['a'] }}{{ nothing_known }}
{{ dict.fromkeys('ab', 1) }}
    {# a comment #}
{% endfor %}
{{ strftime_now('%Y') }}{{ bos_token }}{{ pad_token }}{{ image_token }}{{ tools is none }}{{ unk_token is defined }}
{% if add_generation_prompt %}>{% endif %}

"""


@pytest.mark.torch
def test_what_templates_use_beyond_plain_jinja(folder_of):
    """Loop controls, tojson without escapes, the year, namespaces, white space of blocks, the model's own tokens."""
    transformers = pytest.importorskip("transformers")
    config = {"pad_token": {"content": "<|end|>", "__type": "AddedToken"}, "image_token": "<img>"}
    folder = folder_of(template=ODD, config=config)
    turns = [("user", "<é> & 'x'"), ("tool", "t"), ("assistant", "b"), ("user", "c"), ("user", "d")]
    expected = transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(
        messages_of(turns), tokenize=False, add_generation_prompt=True
    )
    assert expected == open_codec(folder).render(turns_of(turns), add_generation_prompt=True)
    assert "<|end|>" in expected
    assert "<img>" in expected


@pytest.mark.torch
def test_generation_tags_mark_the_characters_that_transformers_masks(folder_of):
    transformers = pytest.importorskip("transformers")
    folder = folder_of(template=source("tagged"))
    codec, theirs = open_codec(folder), transformers.AutoTokenizer.from_pretrained(folder)
    turns = CONVERSATIONS[3]
    found = theirs.apply_chat_template(messages_of(turns), return_dict=True, return_assistant_tokens_mask=True)
    text, spans = codec.render_tagged(turns_of(turns))
    assert ["Yes.", "<think>\n\n</think>\n\nSo it is."] == [text[start:end] for start, end in spans]
    offsets = codec.encode([text])[0].offsets
    inside = [any(first <= start and end <= last for first, last in spans) for start, end in offsets]
    assert inside == [bool(flag) for flag in found["assistant_masks"]]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("config", "files"),
    [
        ({}, {"chat_template.jinja": "a{{ messages[0].content }}"}),
        ({"chat_template": "b"}, {"chat_template.jinja": "a"}),
        ({"chat_template": "b"}, {}),
        ({"chat_template": [{"name": "default", "template": "c"}, {"name": "rag", "template": "d"}]}, {}),
        ({}, {"chat_template.jinja": "a", "additional_chat_templates/rag.jinja": "d"}),
        ({}, {"chat_template.json": '{"chat_template": "e"}'}),
        ({"bos_token": None}, {"chat_template.jinja": "{{ bos_token }}{{ eos_token }}"}),
        ({"eos_token": {"content": "<|end|>", "__type": "AddedToken"}}, {"chat_template.jinja": "{{ eos_token }}"}),
        ({}, {"special_tokens_map.json": '{"eos_token": "<|end|>", "pad_token": {"content": "<eos>"}}'}),
        (
            {"added_tokens_decoder": {"700": {"content": "<new>", "special": True}}, "eos_token": "<new>"},
            {"special_tokens_map.json": '{"eos_token": "<|end|>"}', "chat_template.jinja": "{{ eos_token }}<new>"},
        ),
        ({"additional_special_tokens": ["<extra>", "<s>"]}, {"chat_template.jinja": "<extra>"}),
        ({"split_special_tokens": True}, {"chat_template.jinja": "<s>"}),
    ],
)
def test_files_are_read_as_transformers_reads_them(config, files, folder_of):
    transformers = pytest.importorskip("transformers")
    folder = folder_of(config=config, **files)
    codec, theirs = open_codec(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs.eos_token_id == codec.eos
    assert theirs.get_added_vocab() == dict(codec.control)
    assert bool(theirs.chat_template) == codec.chat
    for text in ("<new> a <extra>", "<s>b</s>"):
        assert theirs(text, add_special_tokens=False).input_ids == codec.encode([text])[0].ids
    if codec.chat:
        expected = theirs.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
        assert expected == codec.render([Message("user", "x")], add_generation_prompt=False)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["Qwen2", "Llama", "GPT2", "Gemma"])
def test_tokenizers_that_a_class_of_transformers_builds_anew_are_the_same(name, tmp_path):
    """These take the vocabulary from the file, and know the rest by themselves."""
    transformers = pytest.importorskip("transformers")
    stored = json.loads(_llama2() if name in ("Llama", "Gemma") else tokenizer_json())["model"]
    special = {"Gemma": {"bos_token": "<bos>", "eos_token": "<eos>"}, "Llama": {}}.get(name, {"eos_token": "</s>"})
    made = getattr(transformers, f"{name}Tokenizer")(
        vocab=stored["vocab"], merges=[tuple(merge) for merge in stored["merges"]], **special
    )
    made.chat_template = source("chatml")
    made.save_pretrained(tmp_path)
    codec, theirs = open_codec(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert f"{name}Tokenizer" == type(theirs).__name__
    for text in (*TEXT, " Hi", "<s>Hi</s> there", "\n\nHi"):
        assert theirs(text, add_special_tokens=False).input_ids == codec.encode([text])[0].ids
        assert theirs(text).input_ids == [*codec.bos, *codec.encode([text])[0].ids]
    assert theirs.eos_token_id == codec.eos


@pytest.mark.torch
def test_the_tokenizer_of_a_saved_model_is_read(sample):
    transformers = pytest.importorskip("transformers")
    codec, theirs = open_codec(sample.tiny), transformers.AutoTokenizer.from_pretrained(sample.tiny)
    for turns in CONVERSATIONS:
        expected = theirs.apply_chat_template(messages_of(turns)).input_ids
        assert expected == codec.encode([codec.render(turns_of(turns), add_generation_prompt=False)])[0].ids


@pytest.mark.parametrize("name", template_names())
def test_our_templates_begin_as_texts_of_the_model_do(name, folder_of):
    """With the BOS that the tokenizer puts before plain text, once; without one, with none of ours."""
    ask = [Message("user", "x")]
    given = open_codec(folder_of("llama 2"), name).render(ask, add_generation_prompt=True)
    assert given.startswith("<s>")
    assert 1 == given.count("<s>")
    if "bos_token" not in source(name):
        assert "<s>" not in open_codec(folder_of("byte level"), name).render(ask, add_generation_prompt=True)


def test_a_folder_that_cannot_be_read_here_says_what_can(folder_of, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"pieces")
    broken = folder_of()
    (broken / "tokenizer.json").write_text("{}")
    own = folder_of(config={"auto_map": {"AutoTokenizer": ["my.Tokenizer", None]}})
    for folder, reason in ((tmp_path, "it has no tokenizer.json"), (broken, "cannot be read"), (own, "of its own")):
        with pytest.raises(InvalidRequest, match=rf"{reason}.*the train extra's transformers"):
            open_codec(folder)


def test_several_templates_without_a_default_are_named(folder_of):
    folder = folder_of(**{"additional_chat_templates/rag.jinja": "a", "additional_chat_templates/tool.jinja": "b"})
    with pytest.raises(InvalidRequest, match=r"the chat templates rag, tool, and none of them is its default"):
        open_codec(folder)
    assert open_codec(folder, "chatml").chat


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ dict.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.x }}",
        "{% set ns = namespace(a=1) %}{% set ns._x = 1 %}{{ ns }}",
        "{{ namespace(_a=1) }}",
        "{{ range(999999999) | list }}",
        "{{ 'a' * 10 ** 15 }}",
        "{{ 1 / 0 }}",
        "{{ messages[0]['role']['x']['y'] }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for m in messages %}",
    ],
)
def test_a_hostile_or_broken_template_is_refused(template, folder_of):
    """It comes with a model, and runs where the notebook runs."""
    with pytest.raises(DataRefusal, match="the chat template does not take it"):
        open_codec(folder_of(template=template)).render([Message("user", "x")], add_generation_prompt=False)


def test_bytes_are_read_from_names_of_both_kinds():
    """Of byte-level vocabularies and of those that fall back to bytes; words of others say nothing."""
    assert (b"\xe2\x98", b"\xf0", b"") == (bytes_named("\u00e2\u013a"), bytes_named("<0xF0>"), bytes_named("\u2581a"))


def test_no_torch_and_no_transformers_are_needed(folder_of):
    """Not even imported, where they are installed."""
    folder = folder_of(template=source("chatml"))
    code = (
        "import sys; from pathlib import Path; from kernel_launcher.data.chat.tokenizer import open_codec\n"
        "assert 'tokenizers' not in sys.modules\n"
        f"open_codec(Path({str(folder)!r})).encode(['a'])\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
