"""A throttle that says which rows an operation changed, and takes in the rows that others did.

This file knows nothing of files, locks or processes, and decides nothing: what a response means is the throttle's to
say, and which entry goes when there is no room is its store's. Rows are only how the outcome is told.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headgate.agent.sharing.recording import Record, RecordedBudget, RecordedNames, RecordedStore
from headgate.agent.sharing.rows import BUDGET, LONGEST_BUCKET, OPT_OUT, Key, Limits, News, Row, Values, bounded
from headgate.http.origin import serialised_origin
from headgate.throttle import Policy, Throttle
from headgate.throttle.fields import Words
from headgate.throttle.target import Target
from headgate.throttle.throttle import UNCOUNTED

__all__ = ["Changes", "Mirror"]


@dataclass
class Changes:
    """What an operation, or several, did to the rows."""

    cleared: set[int]
    """The kinds of which all rows went, before anything else."""
    gone: list[Key]
    rows: list[Row]


class Mirror(Throttle):
    """A throttle whose rows can be told; each name in them is bounded.

    A path longer than 1,024 characters is cut and goes on with a hash of itself, a host longer than any in DNS is
    nobody's, and a bucket whose path is longer than 900 characters is not declared.
    """

    def __init__(
        self,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        *,
        draw: Callable[[], float] = random.random,
        max_targets: int = 100_000,
        max_opt_outs: int = 10_000,
        hold_localhost: bool = False,
        retry_budget: int | None = None,
        coalesce: bool = False,
    ) -> None:
        super().__init__(
            policy,
            draw=draw,
            max_targets=max_targets,
            max_opt_outs=max_opt_outs,
            hold_localhost=hold_localhost,
            retry_budget=retry_budget,
            coalesce=coalesce,
        )
        self._limits = Limits(max_targets, max_opt_outs)
        self._record = Record()
        self._store: RecordedStore = RecordedStore(self._record, max_targets, policy)
        self._opt_outs: RecordedNames[None] = RecordedNames(self._record, OPT_OUT, lambda _: 0)
        self._budget: RecordedBudget | None = (
            None if retry_budget is None else RecordedBudget(self._record, retry_budget, most=max_targets)
        )

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Remember which rows are changed inside, for `changes`."""
        record = self._record
        record.is_on, record.cleared, record.before = True, set(), {}
        try:
            yield
        finally:
            record.is_on = False

    def changes(self) -> Changes:
        """Tell what was recorded last."""
        found = Changes(self._record.cleared, [], [])
        for key, before in self._record.before.items():
            values = self._values(key)
            if values is not None and values != before:
                found.rows.append(Row(key, values))
            elif values is None and before is not None:
                found.gone.append(key)
        return found

    def take_in(self, news: News) -> bool:
        """Learn what others changed; False when that is more than there may be."""
        if news.is_whole:
            self._store.clear()
            self._opt_outs.clear()
            if self._budget is not None:
                self._budget.clear()
        for key in news.gone:
            self._unlearn(*key)
        for (kind, name), values in news.rows:
            self._learn(kind, name, values)
        size = max(self._store.size, len(self._budget or ()))
        return size <= self._limits.entries and len(self._opt_outs) <= self._limits.opt_outs

    def _concerned(self, url: str, status: int, words: Words | None, *, now: float) -> Target | None:
        """Give the target that a response changes something for; None where it changes nothing.

        In doubt it does: whoever counts it then finds nothing to write.
        """
        failed = status in self._failures
        if words is None and not failed and not self._store.size and not self._budget:
            return None
        target = self._target(url)
        if target is None:
            return None
        if self._budget and not failed and target.origin in self._budget:
            return target
        if failed or words is not None:
            return None if self._is_exempt(target) else target
        return None if status in UNCOUNTED or self._store.find(target, now=now) is None else target

    def _is_backing_off(self, origin: str, *, now: float) -> bool:
        """Say whether clearing the backoff of an origin changes anything."""
        serialised = serialised_origin(origin)
        return serialised is not None and any(entry.backoff > now for entry in self._store.of_origin(serialised))

    def _target(self, url: str) -> Target | None:
        target = super()._target(url)
        short = None if target is None else bounded(target)
        if short is not target:
            self._latest = url, short
        return short

    def _heed(self, target: Target, words: Words, now: float) -> None:
        buckets = tuple(path for path in words.buckets if len(path) <= LONGEST_BUCKET)
        super()._heed(target, Words(words.opts_out, buckets, words.retry_after), now)

    def _values(self, key: Key) -> Values | None:
        kind, name = key
        if kind == OPT_OUT:
            return self._opt_outs.values_of(name)
        if kind == BUDGET:
            return None if self._budget is None else self._budget.values_of(name)
        return self._store.values_of(kind, name)

    def _learn(self, kind: int, name: str, values: Values) -> None:
        if kind == OPT_OUT:
            self._opt_outs[name] = None
        elif kind != BUDGET:
            self._store.learn(kind, name, values)
        elif self._budget is not None:
            self._budget.learn(name, values[0])

    def _unlearn(self, kind: int, name: str) -> None:
        if kind == OPT_OUT:
            self._opt_outs.pop(name, None)
        elif kind != BUDGET:
            self._store.unlearn(kind, name)
        elif self._budget is not None:
            self._budget.learn(name, None)
