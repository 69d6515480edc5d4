"""Rows as tokens for the explorer, made in a thread of its own: that takes up to two seconds, a redraw a tenth."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from kernel_launcher.errors import VeriError
from kernel_launcher.preflight import look_at
from veri_jupyter.explorer.data import first_rows, stamp
from veri_jupyter.monitor.trouble import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_launcher.data.show.look import Look
    from kernel_launcher.spec import JobSpec

_log = logging.getLogger(__name__)

_NOTHING = "Nothing to look at yet: name a model and rows."
_TOKENS = ("type", "loss_on", "chat_template")
_CUT = ("max_seq_length", "max_length", "max_prompt_length", "too_long", "packing", "seed", "allow")


class Wish(NamedTuple):
    """What is looked at.

    Attributes:
        tokens: What decides about the tokens of a row.
        cut: What decides about which of them are left, and which rows are named.
    """

    tokens: tuple[object, ...]
    cut: tuple[object, ...]

    @classmethod
    def of(cls, spec: JobSpec, rows: object | None) -> Wish:
        """What there is to look at in a spec, or in rows from the notebook."""
        method = spec.method
        tokens = (spec.dataset, spec.model, stamp(spec, rows), *(getattr(method, name) for name in _TOKENS))
        return cls(tokens, tuple(getattr(method, name) for name in _CUT))


class Seen(NamedTuple):
    """What is known of the rows as tokens.

    Attributes:
        look: The newest look at them; None before the first.
        why_not: Why there is none; empty where there is one, or will be.
        is_looking: Whether another is on its way.
    """

    look: Look | None = None
    why_not: str = ""
    is_looking: bool = False


class Looks:
    """Looks at what was wished for last; at what was wished for meanwhile, never.

    All but the look itself happens in the thread that ``post`` stands for.

    Args:
        post: Runs something in the thread that asks.
        changed: Called there when ``seen`` has changed by itself.

    Attributes:
        seen: What is known now.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None], changed: Callable[[], None]) -> None:
        self._post, self._changed = post, changed
        self._wish: Wish | None = None
        self._asked: tuple[JobSpec, object | None] | None = None  # for which no thread has begun
        self.seen = Seen(why_not=_NOTHING)

    def want(self, spec: JobSpec, rows: object | None, *, closely: bool) -> None:
        """Look, if there is something else to be seen.

        Args:
            spec: Model, data and method.
            rows: Those of a variable; None where the spec names them.
            closely: Whether the cut is looked at, too; else any look at these tokens will do.
        """
        wish, before = Wish.of(spec, rows), self._wish
        same_tokens = before is not None and wish.tokens == before.tokens
        if before is not None and same_tokens and not (closely and wish.cut != before.cut):
            return
        self._wish, self._asked = wish, (spec, rows)
        if not same_tokens:
            self.seen = Seen(is_looking=self.seen.is_looking)
        self._begin()

    def forget(self, why_not: str = _NOTHING) -> None:
        """Want nothing, and see nothing."""
        self._wish = self._asked = None
        self.seen = Seen(None, why_not, self.seen.is_looking)

    def retry(self) -> None:
        """Look again at what could not be seen: a tokenizer may be here now."""
        if self.seen.why_not:
            self.forget()

    def _begin(self) -> None:
        if self.seen.is_looking or self._asked is None:
            return
        (spec, rows), self._asked = self._asked, None
        self.seen = self.seen._replace(is_looking=True)
        # A cell may change the rows of the notebook meanwhile: the first ones are taken here.
        first = None if rows is None else first_rows(rows)
        threading.Thread(target=self._look, args=(self._wish, spec, first), name="veri-look", daemon=True).start()

    def _look(self, wish: Wish, spec: JobSpec, rows: object | None) -> None:
        """In that thread."""
        try:
            seen = Seen(look_at(spec, rows))
        except VeriError as error:
            seen = Seen(why_not=str(error))
        except Exception as error:
            # Whatever it was: nobody sees what this thread prints, and the page would say for ever that it looks.
            _log.exception("the rows could not be looked at")
            seen = Seen(why_not=in_words(error))
        self._post(lambda: self._end(wish, seen))

    def _end(self, wish: Wish, seen: Seen) -> None:
        if wish == self._wish:
            self.seen, self._asked = seen, None
        else:
            self.seen = self.seen._replace(is_looking=False)
            self._begin()
        self._changed()
