"""The texts of one example, taken apart once for all that look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernel_launcher.data.rows.examples import Messages, Preference, PromptCompletion, Text

if TYPE_CHECKING:
    from kernel_launcher.data.rows.examples import Example, Turns

_NOTHING: tuple[()] = ()


class Parts(NamedTuple):
    """What a row says.

    Attributes:
        prompt: What is given before the last answer, text by text.
        answers: What is learned to say; of a pair the preferred answer, and the other.
        contents: All of its texts, in order.
        roles: Who says them, in a chat; nobody in plain text.
    """

    prompt: tuple[str, ...]
    answers: tuple[str, ...]
    contents: tuple[str, ...]
    roles: tuple[str, ...]


def parts_of(example: Example) -> Parts:
    """Take an example apart."""
    if isinstance(example, Messages):
        return _chat(example.messages, example.context)
    if isinstance(example, PromptCompletion):
        answers = (example.completion,)
        return Parts((example.prompt,), answers, (example.prompt, *answers), _NOTHING)
    if isinstance(example, Text):
        return Parts(_NOTHING, _NOTHING, (example.text,), _NOTHING)
    return _pair(example)


def _chat(turns: Turns, context: int) -> Parts:
    contents = tuple([turn.content for turn in turns])
    roles = tuple([turn.role for turn in turns])
    learned = [i for i, role in enumerate(roles) if role == "assistant" and i >= context]
    last = learned[-1] if learned else 0
    return Parts(contents[:last], tuple([contents[i] for i in learned]), contents, roles)


def _pair(example: Preference) -> Parts:
    prompt, chosen, rejected = (_texts(side) for side in (example.prompt, example.chosen, example.rejected))
    roles = tuple([turn.role for side in (example.prompt, example.chosen) for turn in _turns(side)])
    return Parts(prompt, (chosen[-1], rejected[-1]), prompt + chosen + rejected, roles)


def _texts(side: str | Turns | None) -> tuple[str, ...]:
    if side is None:
        return _NOTHING
    return (side,) if isinstance(side, str) else tuple([turn.content for turn in side])


def _turns(side: str | Turns | None) -> Turns:
    return side if isinstance(side, tuple) else _NOTHING
