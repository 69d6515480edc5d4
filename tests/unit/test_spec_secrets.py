"""No token is ever printed, logged or written, wherever somebody has put it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.secrets import is_secret, redact, shown
from kernel_launcher.spec import read_spec

TOKEN = "hf_" + "aB3" * 11 + "z"
OTHER = "correct-horse-battery-staple"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("MY_SERVICE_PASSWORD", f" {OTHER}\n")
    monkeypatch.setenv("MY_SERVICE_PASSWORD_LONG", f"{OTHER}-and-more")


@pytest.mark.parametrize(
    "settings",
    [
        {"hf_token": "short"},
        {"huggingface": {"token": "short"}},
        {"huggingface": {"repo": {"token": "short"}}},
        {"report": {"to": [{"deep": {"api_key": "short"}}]}},
        {"lora_rank": TOKEN},
        {"lora_rank": [{"x": TOKEN}]},
        {"unknown": {"a": {"b": [TOKEN, f"x{OTHER}x"]}}},
        {TOKEN: 1},
        {f"method.{TOKEN}": 1},
        {"optim": f"adam {OTHER}"},
        {"optim": f"{OTHER}-and-more"},
        {"batch_size": TOKEN, "micro_batch_size": 1},
        {"name": TOKEN + "/"},
        {"dataset": f"https://user:{'short'}@host/rows"},
        {"dataset": "https://host/rows.csv?X-Amz-Signature=short&x=1"},
        {"unknown": object.__new__(type("Client", (), {"__repr__": lambda _: f"Client({TOKEN})"}))},
    ],
)
def test_a_refusal_never_shows_a_secret(settings):
    """In a value, a key, a nested dict, a URL or an object's repr: a refusal says what is wrong and shows stars."""
    with pytest.raises(InvalidRequest) as caught:
        read_spec({"base_model": "owner/model", **settings})
    said = str(caught.value) + json.dumps(caught.value.to_json()) + "".join(caught.value._render_traceback_())
    assert "***" in said
    for secret in (TOKEN, "short", OTHER):
        assert secret not in said


def test_toml_that_is_broken_at_a_secret_does_not_show_it():
    """A parser's message quotes the text that it choked on."""
    with pytest.raises(InvalidRequest) as caught:
        read_spec(f"hf_token = {TOKEN}\nhf_token = {TOKEN}")
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [
        (f"login with {TOKEN}!", "login with ***!"),
        (f"HF_TOKEN={TOKEN}", "HF_TOKEN=***"),
        (f"the password is {OTHER}", "the password is ***"),
        (f"the password is {OTHER}-and-more", "the password is ***"),
        ("https://user:pa@ss@host/x", "https://***@host/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("redis://:word@host", "redis://***@host"),
        ("https://host/a@b?x=1", "https://host/a@b?x=1"),
        ("https://s3/x?X-Amz-Signature=abc&X-Amz-Date=2026", "https://s3/x?X-Amz-Signature=***&X-Amz-Date=2026"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("ghp_0123456789abcdefghij", "***"),
        ("sk-ant-0123456789abcdefghij", "***"),
        ("pip install hf_transfer", "pip install hf_transfer"),
        ("./hf_datasets/train.jsonl", "./hf_datasets/train.jsonl"),
        ("pad_token_id=0, eos_token='</s>'", "pad_token_id=0, eos_token='</s>'"),
        ("task-force-0123456789abcdef", "task-force-0123456789abcdef"),
    ],
)
def test_text_is_shown_without_its_secrets(text, shown_as):
    """Tokens by their form, values of secret variables, credentials in URLs; nothing else is touched."""
    assert shown_as == redact(text)


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "hf_token", "model.token", "apiKey", "API_KEY", "db.password", "secret.x"]
)
def test_names_of_secrets(name):
    """A name that says so hides its value, in any spelling."""
    assert is_secret(name)
    assert "***" == shown(name, "anything")


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokenizer", "tokenizer.path", "TOKENIZERS_PARALLELISM", "tokens_per_second"]
)
def test_names_that_only_sound_like_secrets(name):
    """A number of tokens is no secret, and hiding it would hide what is wrong."""
    assert not is_secret(name)


def test_a_secret_that_is_written_with_escapes_is_hidden(monkeypatch):
    """A password with a quote and a backslash reads otherwise in a repr, and is stars there, too."""
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "pa'ss\\word")
    assert "{'x': ['is ***']}" == shown("x", {"x": ["is pa'ss\\word"]})


def test_a_short_variable_hides_nothing(monkeypatch):
    """A secret variable that holds ``true`` must not turn every ``true`` into stars."""
    monkeypatch.setenv("USE_AUTH_TOKEN", "true")
    assert "true or false" == redact("true or false")


def test_a_shown_value_is_short_and_never_an_error():
    """A million rows in the wrong place, a number of 5,000 digits or an object whose repr fails are shown, too."""
    broken = object.__new__(type("Broken", (), {"__repr__": lambda _: 1 / 0}))
    endless: list = []
    endless.append(endless)
    for value in (
        [{"text": "x" * 1000}] * 1_000_000,
        10**5000,
        broken,
        endless,
        {"a": {"b": {"c": {"d": {"e": 1}}}}},
    ):
        assert len(shown("x", value)) <= 120
    assert "<Broken>" == shown("x", broken)
    assert "[1, 2]" == shown("x", (1, 2))


@given(st.text(alphabet="ab/@:? '\"\\\n", max_size=20), st.text(alphabet="ab/@:? '\"\\\n", max_size=20))
def test_a_token_is_found_in_any_surroundings(before, after):
    """Whatever stands around it, a token does not get through; also where repr would escape its neighbours."""
    text = f"{before}{TOKEN} {after}"
    assert TOKEN not in redact(text)
    assert TOKEN not in shown("x", {"y": [text]})
