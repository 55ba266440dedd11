"""Tokens at the proxy: checked by keys alone, and each good once.

What a token says is the core's to find out (`headgate.token`). This room remembers which were shown: for one proxy in
memory that its workers share (`shared`), for several in Redis (`redis`).
"""

from headgate.proxy.tokens.once import Once, TokenCheck

__all__ = ["Once", "TokenCheck"]
