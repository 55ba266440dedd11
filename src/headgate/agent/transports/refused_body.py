"""How much of a refused response's body is read before its request is sent again.

A body that was read to its end leaves a connection that can serve again. One that is longer, or takes longer, is not
worth that: its connection is closed. Otherwise a server that sends a byte now and then would delay the retry for hours.
"""

from typing import Final

MAX_READ_SIZE: Final = 65_536
"""Bytes that are read at most."""

READ_TIMEOUT: Final = 0.5
"""Seconds after which no more is read."""
