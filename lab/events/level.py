"""A number that changes at instants."""


class Level:
    """A number, its mean over time, and its maximum."""

    __slots__ = ("_area", "_since", "_start", "maximum", "value")

    def __init__(self) -> None:
        self.value = 0.0
        """The number now."""
        self.maximum = 0.0
        """The largest number since the last `restart`."""
        self._area = self._since = self._start = 0.0

    def add(self, change: float, now: float) -> None:
        """Change the number by `change` at the instant `now`."""
        self._area += self.value * (now - self._since)
        self._since = now
        self.value += change
        if self.value > self.maximum:
            self.maximum = self.value

    def mean(self, now: float) -> float:
        """Return the mean over the time since the last `restart`."""
        duration = now - self._start
        return (self._area + self.value * (now - self._since)) / duration if duration else self.value

    def restart(self, now: float) -> None:
        """Begin a new mean and a new maximum."""
        self._area, self._since, self._start, self.maximum = 0.0, now, now, self.value
