"""A message that is not passed on, and what to answer instead."""

from headgate.errors import HeadgateError

__all__ = ["Refusal"]


class Refusal(HeadgateError):
    """A message that is refused: `status` to answer and the `reason`, a clause without a full stop.

    Raised by the pure parts for requests (4xx, 505) and for responses (502); it never leaves the gateway.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
