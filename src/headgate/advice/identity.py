"""The names of an agent, from its own to that of every agent (traffic-advice.txt, sections 3 and 4)."""

from collections.abc import Iterable
from typing import Final, Self

from headgate.errors import ConfigurationError, fail_if

PREFETCH_PROXY: Final = "prefetch-proxy"
"""Name of every proxy server that serves prefetch traffic only (section 4, item 2)."""

EVERY_AGENT: Final = "*"
"""Name of every agent (section 4, item 3)."""


class AgentIdentity(tuple[str, ...]):
    """The names of an agent, the most specific first: `AgentIdentity(["ExampleBot", "prefetch-proxy", "*"])`.

    A single text is a brand name: `AgentIdentity("ExampleBot")` is `AgentIdentity(["ExampleBot", "*"])`. "It must
    contain at least two elements, and the last must be "*"" (section 3); otherwise, and for a name that cannot be sent
    in an HTTP field, `ConfigurationError` is raised.
    """

    __slots__ = ()

    def __new__(cls, names: Iterable[str]) -> Self:
        """Check the names."""
        if isinstance(names, cls):
            return names
        if isinstance(names, str):
            fail_if(
                "," in names,
                f"the agent identity {names!r} must be one name or a list of names, such as ['ExampleBot', '*']",
            )
            names = [names, EVERY_AGENT]
        fail_if(
            not isinstance(names, Iterable),
            f"the agent identity must be a brand name such as 'ExampleBot', or a list of names, got {names!r:.80}",
        )
        identity = super().__new__(cls, names)
        for name in identity:
            _check_name(name, identity)
        fail_if(
            len(identity) < 2 or identity[-1] != EVERY_AGENT,
            f"the agent identity {list(identity)!r} must be a brand name, other names if any, and '*' at the end,"
            " such as ['ExampleBot', '*']",
        )
        return identity

    @classmethod
    def of(cls, brand: str, *, prefetch_proxy: bool = False) -> Self:
        """Return the identity of the agent with this brand name "that specifically identifies it" (section 4)."""
        return cls([brand, PREFETCH_PROXY, EVERY_AGENT] if prefetch_proxy else [brand, EVERY_AGENT])

    @property
    def brand(self) -> str:
        """The name of this agent only."""
        return self[0]


def _check_name(name: object, identity: tuple[object, ...]) -> None:
    shown = repr(list(identity))
    if not isinstance(name, str):
        raise ConfigurationError(f"the agent identity {shown} must contain texts, got {name!r}")
    fail_if(not name.strip(), f"the agent identity {shown} contains an empty name")
    fail_if(
        any(character < " " or character == "\x7f" for character in name),
        f"the agent identity {shown} contains a control character",
    )
    fail_if(
        "/" in name,
        f"the agent identity {shown} contains a version, a URL or a User-Agent field; expected a brand name"
        " alone, such as 'ExampleBot'",
    )
