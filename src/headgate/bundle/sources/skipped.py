"""What a source leaves out, counted by reason: one sentence for each reason, however many it holds for."""

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["MessageCallback", "SkipExchange", "SkipReport", "ignore_message"]

MessageCallback: TypeAlias = Callable[[str], None]
"""Takes a sentence for whoever makes the bundle."""

_SHOWN = 120
"""Characters of an example: a data: URL can be a whole film."""


def ignore_message(_sentence: str) -> None:
    """Tell nobody."""


class SkipExchange(Exception):
    """An answer that no bundle should hold; its text is a reason that others may share."""


class SkipReport:
    """Counts what is left out of a bundle."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, example: str) -> None:
        """Count one more for `reason`; of each reason the first example is shown."""
        count, first = self._reasons.get(reason, (0, example))
        self._reasons[reason] = count + 1, first

    def tell(self, tell: MessageCallback, *, where: str) -> None:
        """Tell each reason once, the first first."""
        for reason, (count, example) in self._reasons.items():
            shown = repr(example if len(example) <= _SHOWN else f"{example[: _SHOWN - 3]}...")
            tell(f"{where}: left out {f'{count}, such as ' if count > 1 else ''}{shown}: {reason}")
