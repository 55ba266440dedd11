"""How much the agent's side takes at once, and for how long."""

__all__ = ["LINGER", "LONGEST_MEMO", "MOST_BUFFERED", "MOST_PER_TURN", "MOST_THROWN_AWAY"]

MOST_BUFFERED = 65536
"""Bytes sent ahead that are kept while a request is under way."""
MOST_PER_TURN = 32
"""Requests answered here in a row before others get their turn: thousands of them fit into what is read at once."""
MOST_THROWN_AWAY = 65536
"""Bytes of an unwanted body that are read so that the connection can go on; for a longer one it is closed."""
LINGER = 2.0
"""Seconds a connection is still read after the last response, so that the agent gets to read it (9112 9.6)."""
LONGEST_MEMO = 4096
"""Bytes of the longest head that is remembered."""
