"""The holds of a gatekeeper, for tests."""

from typing import Any

from headgate.limit import Gatekeeper


def top(gatekeeper: Gatekeeper, domain: str, **arguments: Any) -> list[tuple[bytes, float]]:
    """Return the identifiers held longest in a domain, with their release times."""
    return [[], *gatekeeper.top_in_steps(domain, **arguments)][-1]
