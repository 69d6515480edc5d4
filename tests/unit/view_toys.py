"""A data view to look at, with whatever text a test puts into it."""

from __future__ import annotations

from typing import Any

from kernel_launcher.data.lint.finding import Finding
from kernel_launcher.data.show.tokens import Token
from kernel_launcher.data.show.view import DataView, Part, Row

LENGTHS: dict[str, Any] = {
    "rows": 600, "kept": 597, "cut": 14, "answer_cut": 9, "dropped_by_reason": {"cut_before_answer": 3}, "p50": 56,
    "p95": 880, "max": 3911, "padding_share": 0.38, "packing": None, "tokens": 60_000, "trained_tokens": 36_000,
    "packing_rows": 4.5, "packing_saves": 0.35,
}  # fmt: skip


def token(text: str, role: str | None = None, **marks: Any) -> Token:
    return Token(
        **{"id": len(text), "text": text, "role": role, "trained": False, "special": False, "cut": False, **marks}
    )


def chat(question: str = "What is it?", answer: str = " A name.") -> tuple[Token, ...]:
    """One question and one answer in ChatML, a word a token."""
    return (
        token("<|im_start|>", special=True),
        token("user"),
        token("\n"),
        *(token(word, "user") for word in _words(question)),
        token("<|im_end|>", special=True),
        token("\n"),
        token("<|im_start|>", special=True),
        token("assistant"),
        token("\n"),
        *(token(word, "assistant", trained=True) for word in _words(answer)),
        token("<|im_end|>", special=True, trained=True),
        token("\n"),
    )


def a_view(*rows: Row, **facts: Any) -> DataView:
    """A view of these rows, or of one chat."""
    said: dict[str, Any] = {
        "source": "./sft.jsonl",
        "model": "./smollm2",
        "settings": {"method": "sft_text", "loss_on": "answers", "max_seq_length": 1024},
        "rows_seen": 600,
        "complete": True,
        "formats": {"messages": 600},
        "micro_batch_size": 2,
        "lengths": LENGTHS,
        "findings": (),
        "kind": "random",
        "of_kind": 600,
        "rows": rows or (a_row(),),
    }
    return DataView(**{**said, **facts})


def a_row(
    tokens: tuple[Token, ...] | None = None, prompt: str | None = "<|im_start|>user\nWhat?", **facts: Any
) -> Row:
    return Row(**{"number": 17, "parts": (Part("", tokens or chat()),), "prompt": prompt, **facts})


def a_finding(**facts: Any) -> Finding:
    said: dict[str, Any] = {
        "code": "stop_token_never_trained", "severity": "error", "message": "In 600 of 600 rows nothing stops it.",
        "rows": tuple(range(1, 21)), "count": 600, "fix": "Use another template.",
    }  # fmt: skip
    return Finding(**{**said, **facts})


def _words(text: str) -> list[str]:
    """Words with the space before them."""
    return [f" {word}" if i else word for i, word in enumerate(text.split(" "))]
