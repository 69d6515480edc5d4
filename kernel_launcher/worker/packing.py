"""Several rows in one sequence: batches that keep them apart, and the proof that the model does, too.

The rows are told apart by position ids alone, which begin again at each row, and by the absence of an attention mask:
transformers builds the mask from them for each kind of layer, sliding windows too, and for any micro batch. A mask of
our own would take the windows away, and some models ignore the positions; so the model is asked before step 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence

from kernel_launcher.data.training.encode import IGNORED
from kernel_launcher.worker.answering import aside
from kernel_launcher.worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOKENS = "tokens"

_PROBE_TOKENS = 24
# What rounding may make of the difference that another context makes. Measured on 30 architectures: at most 1e-6 of
# it in float32 and 0.016 in bfloat16 where rows are kept apart; mostly 0.1 to 1 where they are not.
_ROUNDING = {torch.float32: 1e-3}
_COARSE_ROUNDING = 0.05
# Parts of the names of layer types that carry something along the sequence besides attention.
_CARRYING = ("linear", "conv", "hybrid", "compressed")


@dataclass(frozen=True, slots=True)
class PackedCollator:
    """Micro-batches of packed sequences, padded to the longest.

    A sequence has ``input_ids``, ``labels`` and ``lengths``, the tokens of each row in it. A batch has ``input_ids``,
    ``labels`` and ``position_ids``, each of shape (sequences, tokens), and ``tokens`` without padding, of shape
    (sequences,). Padding is a row of its own that nobody looks at.
    """

    pad_token_id: int

    def __call__(self, sequences: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, torch.Tensor]:
        """One micro-batch."""
        ids = [torch.tensor(sequence["input_ids"]) for sequence in sequences]
        longest = max(map(len, ids))
        positions = [_positions(sequence["lengths"], longest) for sequence in sequences]
        labels = pad_sequence(
            [torch.tensor(sequence["labels"]) for sequence in sequences], batch_first=True, padding_value=IGNORED
        )
        position_ids = torch.stack(positions)
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_token_id),
            # The token before a row's first one is another row's last: it must not learn to predict it.
            "labels": labels.masked_fill(position_ids == 0, IGNORED),
            "position_ids": position_ids,
            TOKENS: torch.tensor([len(sequence) for sequence in ids]),
        }


def _positions(lengths: Sequence[int], until: int) -> torch.Tensor:
    padding = until - sum(lengths)
    return torch.cat([torch.arange(length) for length in (*lengths, padding)])


def check_packing(model: Any, vocabulary: int, device: torch.device) -> None:
    """Make sure that the model keeps packed rows apart; of a sharded one, every rank must be here at once.

    It reads a row behind another one and a row before padding, and must answer as it does to the row alone.

    Args:
        model: The model as it is trained; called four times, on 48 tokens at most.
        vocabulary: Rows of its embedding.
        device: Where it computes.

    Raises:
        ConfigError: It does not.
    """
    reason = _state(model) or _difference(model, vocabulary, device)
    if reason:
        raise ConfigError(
            f"method.packing: a {type(_innermost(model)).__name__} does not keep packed rows apart: {reason}",
            "Leave packing off.",
        )


def _state(model: Any) -> str | None:
    kinds = getattr(_innermost(model).config.get_text_config(), "layer_types", None) or ()
    carrying = sorted({kind for kind in kinds if any(part in kind for part in _CARRYING)})
    if carrying or getattr(_innermost(model), "_is_stateful", False):
        named = f" ({', '.join(carrying)})" if carrying else ""
        return f"it has layers{named} whose state runs on from one row into the next."
    return None


def _difference(model: Any, vocabulary: int, device: torch.device) -> str | None:
    generator = torch.Generator().manual_seed(0)
    before, changed, row = (
        torch.randint(vocabulary, (count,), generator=generator)
        for count in (_PROBE_TOKENS, _PROBE_TOKENS, _PROBE_TOKENS - 7)
    )
    collate = PackedCollator(0)
    with aside(model):
        behind, padded = _answers(model, collate([_packed(before, row), _packed(row)]), device, len(row))
        moved, _ = _answers(model, collate([_packed(changed, row), _packed(row)]), device, len(row))
        alone, as_one = (
            model(input_ids=ids[None].to(device), use_cache=False).logits[0, -len(row) :]
            for ids in (row, torch.cat([before, row]))
        )
    allowed = _ROUNDING.get(alone.dtype, _COARSE_ROUNDING) * _apart(as_one, alone)
    if _apart(behind, alone) > allowed or _apart(padded, alone) > allowed:
        return "it answers otherwise to a row in a packed sequence than to the row alone."
    # Same shapes, same arithmetic: equal to the last bit, unless experts share their work between all tokens.
    if not torch.equal(behind, moved) and not _has_experts(model):
        return "its answers to a row depend on the row before it."
    return None


def _packed(*rows: torch.Tensor) -> dict[str, Any]:
    ids = torch.cat(rows).tolist()
    return {"input_ids": ids, "labels": ids, "lengths": [len(row) for row in rows]}


def _answers(
    model: Any, batch: Mapping[str, torch.Tensor], device: torch.device, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of the last row of the first sequence, and of the first row of the second."""
    inputs = {name: batch[name].to(device) for name in ("input_ids", "position_ids")}
    logits = model(**inputs, use_cache=False).logits
    return logits[0, -length:], logits[1, :length]


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.float() - other.float()).abs().max())


def _has_experts(model: Any) -> bool:
    return any("experts" in key for key in _innermost(model).config.get_text_config().to_dict())


def _innermost(model: Any) -> Any:
    """The transformers model inside an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
