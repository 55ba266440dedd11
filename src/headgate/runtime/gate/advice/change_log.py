"""Lines of the advice loop for the log: one when what is published or known of a class changes, few of them."""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from headgate.advice.controller import Reason
from headgate.observe import AdviceState

_PAUSE: Final = 10.0
"""Seconds between two lines of a kind. What changes meanwhile is in the next one."""
_FRACTIONS: Final = "fractions"
_DOWN: Final = "down"
_REASONS: Final = {
    Reason.DISOBEYS: (
        "warning: traffic advice: {}: this class does not obey, and the gate has to limit it",
        "traffic advice: all classes obey",
    ),
    Reason.NO_FETCH: (
        "traffic advice: {}: this class sends requests and does not fetch the advice",
        "traffic advice: all classes fetch the advice",
    ),
}
"""The lines for classes that have a reason, and when none has it any more."""


class ChangeLog:
    """Compares each decision with what was logged last; `log` is called with the lines."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._logged: dict[str, Hashable] = {_DOWN: False} | dict.fromkeys(_REASONS, ())
        self._last: dict[str, float] = {}

    def decided(self, classes: Sequence[AdviceState], *, down: bool, now: float) -> None:
        """Log what has changed; `down` is whether the origin could not be reached."""
        computed = [each for each in classes if each.reason != "static"]
        fractions = tuple((each.user_agent, each.fraction) for each in computed)
        text = ", ".join(f"{each.user_agent} {_describe(each)}" for each in computed)
        self._change(_FRACTIONS, fractions, f"traffic advice: {text}", now)
        for reason, (some, none) in _REASONS.items():
            names = tuple(sorted(each.user_agent for each in classes if each.reason == reason))
            self._change(reason, names, some.format(", ".join(names)) if names else none, now)
        text = "the origin is unreachable, so the fractions stay" if down else "the origin is reachable again"
        self._change(_DOWN, down, f"traffic advice: {text}", now)

    def _change(self, kind: str, value: Hashable, text: str, now: float) -> None:
        if value == self._logged.get(kind) or 0.0 <= now - self._last.get(kind, now - _PAUSE) < _PAUSE:
            return
        self._logged[kind], self._last[kind] = value, now
        self._log(text)


def _describe(each: AdviceState) -> str:
    fraction = "disallowed" if each.fraction <= 0.0 else f"{each.fraction:.3g}"
    return f"{fraction} ({each.reason})" if each.published == each.fraction else f"{fraction} (not published)"
