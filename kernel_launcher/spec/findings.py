"""The codes of what the data linter can find: what a job may accept in ``allow``, and what no run goes on with."""

from __future__ import annotations

ACCEPTABLE = (
    "answer_repeats_prompt", "answers_cut", "bos_missing", "broken_characters", "chosen_equals_rejected",
    "control_tokens_in_text", "difference_cut", "double_bos", "duplicated_rows", "empty_answers", "heldout_overlap",
    "heldout_prompts", "identical_answers", "mixed_formats", "nothing_trained", "placeholder_answers",
    "prompt_differs", "prompt_ends_inside_token", "roles_confused", "spaced_answers", "stop_token_never_trained",
    "swapped_pairs", "trailing_turns", "turns_dropped", "turns_merged",
)  # fmt: skip
# A row that cannot be read has no tokens, and a token past the embedding has no weights.
FATAL = ("unusable_rows", "id_past_embedding")
