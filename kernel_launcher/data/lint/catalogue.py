"""Every finding: when it is an error, what it says, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(NamedTuple):
    """One kind of finding.

    Attributes:
        message: What is wrong, and why it matters; ``{rows}`` is "3 of 600 rows", ``{detail}`` what was seen first.
        fix: The cheapest thing to do about it.
        error_from: The share of all rows from which on it is an error; None where it stays a warning.
    """

    message: str
    fix: str
    error_from: float | None = None


ALWAYS = 0.0
_TEMPLATE = "Use the chat template that the model was made with."
_SAME_PAIRS = "Remove these rows, or look at how the answers were ranked."

CATALOGUE: Mapping[str, Kind] = {
    # The rows cannot be trained on at all.
    "unusable_rows": Kind("{rows} cannot be used: {detail}", "Mend or remove them.", ALWAYS),
    "id_past_embedding": Kind(
        "In {rows} the tokenizer writes a token without a row in the embedding ({detail}).",
        "Use the tokenizer and the weights of the same model.",
        ALWAYS,
    ),
    "nothing_trained": Kind(
        "In {rows} no token is trained: {detail}.",
        "Raise max_seq_length, shorten the prompts, or remove these rows.",
        1.0,
    ),
    # The model learns another thing than meant.
    "stop_token_never_trained": Kind(
        "In {rows} no trained token stops the model, so it learns to write on ({detail}).",
        "Use a chat template that ends an answer with a control token.",
        ALWAYS,
    ),
    "double_bos": Kind(
        "In {rows} the text begins with {detail} twice, and the model was made with one.",
        "Take it out of the rows, or out of the chat template.",
        ALWAYS,
    ),
    "prompt_differs": Kind(
        "In {rows} the trained text does not begin as the prompt that inference sends ({detail}).",
        f"{_TEMPLATE} It must write an answer right behind its generation prompt.",
        ALWAYS,
    ),
    "turns_dropped": Kind(
        "In {rows} the chat template leaves a turn out, so the model never reads it ({detail}).",
        f"{_TEMPLATE} Or put what that turn says into one that the template writes.",
        ALWAYS,
    ),
    "roles_confused": Kind(
        "In {rows} the chat template writes a turn as if the model had said it ({detail}).",
        f"{_TEMPLATE} Or put what that turn says into a user's turn.",
        ALWAYS,
    ),
    "control_tokens_in_text": Kind(
        "In {rows} a turn holds the text of a control token, which is read as that token ({detail}).",
        "Take it out of the turns: the chat template writes the control tokens.",
        ALWAYS,
    ),
    "empty_answers": Kind(
        "In {rows} nothing of an answer can be seen, so the model learns to say nothing.",
        "Remove these rows, or give their answers.",
        ALWAYS,
    ),
    "chosen_equals_rejected": Kind(
        "In {rows} chosen and rejected are equal, so nothing is learned from them.", _SAME_PAIRS, 0.1
    ),
    "heldout_overlap": Kind(
        "In {rows} the whole row is held out as well, so the held-out loss says little.",
        "Take them out of one of the two.",
        ALWAYS,
    ),
    # What somebody should look at.
    "heldout_prompts": Kind(
        "In {rows} the prompt is also a held-out one, with another answer.", "Split the data by prompt."
    ),
    "bos_missing": Kind(
        "In {rows} the chat template writes no {detail}, which the tokenizer puts before every plain text.",
        f"{_TEMPLATE} If the model's own is without it, inference must be, too.",
    ),
    "turns_merged": Kind(
        "In {rows} the chat template writes two turns with nothing between them ({detail}).",
        "Join such turns yourself, or put what is missing between them.",
    ),
    "trailing_turns": Kind(
        "In {rows} turns follow the last answer: they are read, and nothing is learned from them.",
        "Remove these turns, or give the answers to them.",
    ),
    "prompt_ends_inside_token": Kind(
        "In {rows} one token holds the end of the prompt and the start of the answer; at inference the prompt ends "
        "before it, with other tokens ({detail}).",
        "Let the prompt end without white space, and the answer begin with it.",
    ),
    "answers_cut": Kind(
        "In {rows} an answer loses its end, and with it the token that stops the model ({detail}).",
        'Raise the allowed length, shorten the rows, or set too_long to "drop".',
    ),
    "difference_cut": Kind(
        "In {rows} chosen and rejected are equal once they are cut, so nothing is learned from them.",
        "Raise max_length, or remove these rows.",
    ),
    "identical_answers": Kind("In {rows} the answer is the same.", "Look at it, and keep some of these rows."),
    "placeholder_answers": Kind(
        "In {rows} the answer is {detail}, as an export writes where a value is missing.", "Remove these rows."
    ),
    "spaced_answers": Kind(
        "In {rows} an answer of a chat begins or ends with white space, which the model learns to write.",
        "Strip the answers.",
    ),
    "answer_repeats_prompt": Kind(
        "In {rows} the answer begins with the whole prompt, so the model learns to repeat it.",
        "Take the prompt out of the answers.",
    ),
    "broken_characters": Kind(
        "In {rows} the text was damaged by a wrong encoding ({detail}).",
        "Read the source as UTF-8, or as what it is.",
    ),
    "duplicated_rows": Kind(
        "In {rows} an earlier row is repeated.", "Remove them, unless they are meant to count twice."
    ),
    "swapped_pairs": Kind(
        "In {rows} chosen and rejected are those of another row, the other way round.", _SAME_PAIRS
    ),
    "mixed_formats": Kind(
        "In {rows} there is {detail}: only chats get the chat template around them.", "Write all rows as chats."
    ),
}  # fmt: skip
