"""One row -> one normalised example. The format is judged row by row, never by the first row.

A row may fit several formats. The columns that ``[dataset]`` names decide; without them, for ``sft_text``, the first
of these whose columns the row has (null is no column):

    messages, else conversations     a chat: role and content, or from and value (ShareGPT)
    prompt and completion            plain text, or two lists of turns; only the completion is an answer
    instruction and output           Alpaca, with optional input and system: a chat of one question
    text                             plain text

A chat wins over text that was rendered from it: only the chat says which tokens are the answer. ``dpo`` reads chosen
and rejected, with or without a prompt.

A system message exists in chats only. So prompt and completion with a system column are read as a chat, which needs
a model with a chat template. Without that column they stay plain text, also for an instruct model: the row is exactly
what the model reads and writes. Who wants the template around them gives messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.rows.columns import Names
from kernel_launcher.data.rows.examples import Message, Messages, Preference, PromptCompletion, Text
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.rows.messages import conversation, is_sharegpt, is_turns, quoted, text
from kernel_launcher.data.rows.readers import Broken
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.examples import Example, Turns
    from kernel_launcher.data.rows.faults import RowFaults

    Row = Mapping[str, Any]

_NEEDED = {
    "sft_text": "sft_text needs messages, or prompt and completion, or instruction and output, or text.",
    "dpo": "dpo needs chosen and rejected.",
}
# The fields of [dataset] that each method reads, grouped into what one row can be.
_READ_BY = {
    "sft_text": ({"messages"}, {"prompt", "completion"}, {"text"}),
    "dpo": ({"prompt", "chosen", "rejected"},),
}
# What rows are that only the other method can use.
_OTHERS = {
    "sft_text": ("dpo", "it is a preference between two answers"),
    "dpo": ("sft_text", "it has an answer to learn, and no second one to compare it with"),
}
_NO_TOOLS: tuple[object, ...] = (None, "", "[]", [])


@dataclass(frozen=True, slots=True)
class _Format:
    """The columns that a row needs, and how it is read: its format's name, and the example."""

    columns: tuple[str, ...]
    read: Callable[[Row, Names], tuple[str, Example]]

    def fits(self, row: Row) -> bool:
        """Whether the row has something in each of them."""
        return all(row.get(name) is not None for name in self.columns)


class RowReader:
    """Reads the rows of one data set for one method.

    Args:
        columns: The names that the user gave.
        method: ``sft_text`` or ``dpo``.

    Raises:
        InvalidRequest: The named columns contradict each other or the method.
    """

    def __init__(self, columns: Columns, method: str) -> None:
        named = columns.named()
        _refuse_contradictions(named, method)
        self.needed = _NEEDED[method]
        self._method = method
        self._names = columns.names()
        self._must_exist = tuple(named.values())
        self._formats = _formats(named, self._names, method)

    def read(self, row: Row) -> tuple[str, Example]:
        """The name of the row's format, and the example.

        Raises:
            DataRefusal: The row fits no format, or a value in it cannot be used.
        """
        for name in self._must_exist:
            if name not in row:
                raise DataRefusal(f"it has no column {quoted(name)}.")
        for form in self._formats:
            for name in form.columns:  # a loop, not all(): it is the hottest line of the check
                if row.get(name) is None:
                    break
            else:
                return form.read(row, self._names)
        raise DataRefusal(self._why_none_fits(row))

    def examples(
        self, rows: Iterable[tuple[int, Row | Broken]], faults: RowFaults
    ) -> Iterator[tuple[int, str, Example]]:
        """Number, format and example of each row that can be used; the others go to ``faults``."""
        for number, row in rows:
            if isinstance(row, Broken):
                faults.add(number, row.reason)
                continue
            try:
                name, example = self.read(row)
            except DataRefusal as refusal:
                faults.add(number, refusal, row)
            else:
                yield number, name, example

    def known_columns(self) -> frozenset[str]:
        """Every column name that this reader looks for."""
        return frozenset(name for form in self._formats for name in form.columns) | frozenset(self._must_exist)

    def _why_none_fits(self, row: Row) -> str:
        """Names the method that the row is for, or the missing half of a format that it has the first half of."""
        other, what = _OTHERS[self._method]
        compared = (self._names.chosen, self._names.rejected) if self._method == "dpo" else ()
        if all(row.get(name) is None for name in compared) and any(
            form.fits(row) for form in _formats({}, Names(), other)
        ):
            return f'{what}: type = "{other}" learns from such rows.'
        for form in self._formats:
            missing = [name for name in form.columns if row.get(name) is None]
            if len(missing) < len(form.columns) or len(self._formats) == 1:
                return f"it has nothing in {' and '.join(quoted(name) for name in missing)}."
        return "it fits no format."


def _formats(named: Mapping[str, str], names: Names, method: str) -> tuple[_Format, ...]:
    if method == "dpo":
        compared = names.chosen, names.rejected
        return (_Format((names.prompt, *compared) if "prompt" in named else compared, _preference),)
    messages = _Format((names.messages,), _chat)
    pair = _Format((names.prompt, names.completion), _pair)
    plain = _Format((names.text,), _text)
    if "messages" in named:
        return (messages,)
    if "prompt" in named or "completion" in named:
        return (pair,)
    if "text" in named:
        return (plain,)
    chats = (
        messages,
        _Format(("conversations",), _conversations),
        pair,
        _Format(("instruction", "output"), _alpaca),
    )
    return chats if "system" in named else (*chats, plain)


def _chat(row: Row, names: Names) -> tuple[str, Example]:
    return _turns(row, names, names.messages)


def _conversations(row: Row, names: Names) -> tuple[str, Example]:
    return _turns(row, names, "conversations")


def _turns(row: Row, names: Names, column: str) -> tuple[str, Example]:
    _refuse_tools(row)
    turns = _answered(row[column], column)
    name = "sharegpt" if is_sharegpt(row[column]) else "messages"
    return name, Messages(_with_system(turns, _system(row, names)))


def _pair(row: Row, names: Names) -> tuple[str, Example]:
    prompt, completion = row[names.prompt], row[names.completion]
    system = _system(row, names)
    if is_turns(prompt) and is_turns(completion):
        _refuse_tools(row)
        given = _with_system(conversation(prompt, names.prompt), system)
        answer = _answered(completion, names.completion)
        return "prompt_completion", Messages(given + answer, context=len(given))
    question, reply = text(prompt, names.prompt), _answer(completion, names.completion)
    if names.system in row:
        return "prompt_completion", _asked(question, reply, system)
    return "prompt_completion", PromptCompletion(question, reply)


def _alpaca(row: Row, names: Names) -> tuple[str, Example]:
    question, reply = text(row["instruction"], "instruction"), _answer(row["output"], "output")
    context = _optional(row, "input")
    return "alpaca", _asked(f"{question}\n\n{context}" if context else question, reply, _system(row, names))


def _text(row: Row, names: Names) -> tuple[str, Example]:
    return "text", Text(text(row[names.text], names.text))


def _preference(row: Row, names: Names) -> tuple[str, Example]:
    prompt, chosen, rejected = row.get(names.prompt), row[names.chosen], row[names.rejected]
    system = _system(row, names)
    if is_turns(chosen) and is_turns(rejected):
        _refuse_tools(row)
        given = _given(prompt, names.prompt)
        better, worse = (
            _after(given, _answered(turns, column))
            for turns, column in ((chosen, names.chosen), (rejected, names.rejected))
        )
        return "preference", Preference(_with_system(given, system) or None, better, worse)
    good, bad = _answer(chosen, names.chosen), _answer(rejected, names.rejected)
    question = None if prompt is None else text(prompt, names.prompt)
    if system is None:
        return "preference", Preference(question, good, bad)
    if question is None:
        raise DataRefusal("it has a system message and no prompt.")
    asked = _with_system((Message("user", question),), system)
    return "preference", Preference(asked, (Message("assistant", good),), (Message("assistant", bad),))


def _given(prompt: object, column: str) -> Turns:
    """The turns before the two continuations; a prompt in plain text is one user turn."""
    if prompt is None:
        return ()
    if is_turns(prompt):
        return conversation(prompt, column)
    return (Message("user", text(prompt, column)),)


def _after(given: Turns, turns: Turns) -> Turns:
    """The continuation alone: many sets repeat the prompt at the start of chosen and rejected."""
    return turns[len(given) :] if turns[: len(given)] == given else turns


def _asked(question: str, answer: str, system: str | None) -> Messages:
    return Messages(_with_system((Message("user", question), Message("assistant", answer)), system))


def _with_system(turns: Turns, system: str | None) -> Turns:
    if system is None:
        return turns
    if not turns or turns[0].role != "system":
        return (Message("system", system), *turns)
    if turns[0].content != system:
        raise DataRefusal("its system turn and its system column differ.")
    return turns


def _refuse_tools(row: Row) -> None:
    """At inference the chat template would write them into the prompt."""
    if row.get("tools") not in _NO_TOOLS:
        raise DataRefusal("it has 'tools', which this release does not read; put them into the system turn.")


def _answered(value: object, column: str) -> Turns:
    """A conversation with something to learn; as with ``_answer``, the last answer may be empty."""
    turns = conversation(value, column, answered=True)
    if not any(turn.role == "assistant" for turn in turns):
        raise DataRefusal(f"{quoted(column)} has no assistant turn: there is no answer to learn.")
    return turns


def _answer(value: object, column: str) -> str:
    """The text to learn. If it is empty, the model learns to stop at once: the linter has an error for that."""
    return text(value, column, may_be_empty=True)


def _system(row: Row, names: Names) -> str | None:
    return _optional(row, names.system)


def _optional(row: Row, column: str) -> str | None:
    """The text in a column that a row need not have; None where there is none."""
    value = row.get(column)
    if value is None:
        return None
    content = text(value, column, may_be_empty=True)
    return None if not content or content.isspace() else content


def _refuse_contradictions(named: Mapping[str, str], method: str) -> None:
    """Refuse names that the method does not read, and names of two formats at once."""
    choices = _READ_BY[method]
    faults = [
        Fault(
            f"dataset.{field}",
            shown(field, named[field]),
            f"{method} does not read this column.",
            "Leave it out.",
        )
        for field in named
        if field != "system" and not any(field in choice for choice in choices)
    ]
    chosen = [field for field in named if any(field in choice for choice in choices)]
    if not any(choice.issuperset(chosen) for choice in choices):
        reason = f"{' and '.join(chosen)} are columns of different formats, and a row is read as one."
        faults.append(Fault("dataset", "", reason, "Name the columns of one format."))
    if "text" in named and "system" in named:
        reason = "a system message has no place in plain text."
        faults.append(Fault("dataset.system", shown("system", named["system"]), reason, "Leave it out."))
    if faults:
        raise InvalidRequest(faults)
