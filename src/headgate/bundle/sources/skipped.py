"""What a source leaves out, counted by reason: one message for each reason."""

from collections.abc import Callable
from typing import TypeAlias

MessageCallback: TypeAlias = Callable[[str], None]
"""Called with a message for the user."""

_MAX_SHOWN = 120
"""Maximum characters of an example: a data: URL can be long."""


def ignore_message(_sentence: str) -> None:
    """Ignore the message."""


class SkipExchange(Exception):
    """An exchange that is left out; the text is the reason, which several may share."""


class SkipReport:
    """Counts what is left out of a bundle."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, example: str) -> None:
        """Count an exchange for `reason`; the first example of each is shown."""
        count, first = self._reasons.get(reason, (0, example))
        self._reasons[reason] = count + 1, first

    def tell(self, tell: MessageCallback, *, where: str) -> None:
        """Pass one message for each reason, in the order of their first examples."""
        for reason, (count, example) in self._reasons.items():
            shown = repr(example if len(example) <= _MAX_SHOWN else f"{example[: _MAX_SHOWN - 3]}...")
            tell(f"{where}: left out {f'{count}, such as ' if count > 1 else ''}{shown}: {reason}")
