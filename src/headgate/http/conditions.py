"""The conditions on a request: what the configuration and middlewares say about the requests of a domain.

Values only: `headgate.origin.routes` checks them and finds the domain of a request.
"""

import msgspec

Texts = str | tuple[str, ...]


def as_tuple(value: Texts) -> tuple[str, ...]:
    """Return the values of a key that is a text or a list of texts."""
    return (value,) if isinstance(value, str) else value


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request must have, all of it; an empty value sets no condition."""

    path_prefix: Texts = ""
    """Matches requests whose path begins with this, or with one of a list; empty matches all. The path is
    percent-decoded, a segment loses its parameters (`;x`), then `.`, `..` and empty segments are resolved. `/api/`
    matches whole segments."""
    host: Texts = ""
    """Matches requests for this host, or one of a list, in any case; on any port unless it names one. Empty matches
    all."""
    methods: tuple[str, ...] = ()
    """Matches requests with one of these methods, which are case-sensitive; GET includes HEAD. Empty matches all."""
    header: str = ""
    """Matches requests that have this header field; empty matches all."""
    value: str = ""
    """Value of the whole field `header`, with or without its parameters; compared exactly, except for the scheme of
    Authorization. A field with several lines, or longer than 8 KiB, does not match, so end the list with a domain
    without conditions."""
    prefix: str = ""
    """What the value of `header` begins with, instead of `value`."""
    regex: str = ""
    """Regular expression that is found in the value of `header`, instead of `value`; `^` and `$` anchor it. In the
    syntax of RE2, which takes linear time; needs the extra `re2`."""
    user_agent: str = ""
    """Matches requests whose User-Agent has this product, such as ExampleBot, in any case and version, also in a
    comment; empty matches all. A field that is malformed, repeated or longer than 8 KiB has none."""
    agent: Texts = ""
    """Matches requests that one of these agents has signed (Web Bot Auth): URLs of their keys, such as
    https://bot.example for the well-known directory of that host, or * for any agent. Empty matches all."""
    clients: tuple[str, ...] = ()
    """Matches requests of clients with one of these addresses, or in one of these CIDRs; the client of a trusted proxy
    is the one that it names. Empty matches all."""

    @property
    def is_empty(self) -> bool:
        """Whether it is without conditions."""
        return not any(getattr(self, name) for name in Conditions.__struct_fields__)
