"""What a request claims: the Web Bot Auth signatures that it has, before a key is known.

A claim names the agent, the key and the bytes that were signed. It says nothing until the key of that pair, the URL and
the key id, has verified it: "Until then, verifiers MUST NOT attach policy to it".
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from headgate.identity.fields import Item, parse_dictionary, parse_string
from headgate.identity.keys import ALGORITHM, PublicKey
from headgate.identity.message import NoComponent, SignedMessage, component_value, signature_base
from headgate.identity.signing import MAX_LIFETIME, TAG
from headgate.identity.url import AgentUrl, agent_url

SKEW: Final = 60.0
"""Seconds by which the clocks of an agent and an origin may differ."""

MAX_SIGNATURES: Final = 4
"""Signatures of one request that are considered."""

MAX_COMPONENTS: Final = 16
"""Components of one signature."""

_FIELD: Final = "signature-agent"


class Claim(msgspec.Struct, frozen=True):
    """One signature of a request that satisfies the profile, and is not verified."""

    agent: AgentUrl
    """Where its key should be."""
    key_id: str
    base: bytes
    """What was signed."""
    signature: bytes
    expires: float
    """The instant from which it is not accepted any more, with the skew."""
    nonce: str
    """Empty without one."""
    is_narrow: bool
    """Whether it covers more than the authority and the agent, so that other requests may not have it."""

    def is_signed_by(self, key: PublicKey) -> bool:
        """Return whether a key, which must be that of the pair of URL and key id, signed it."""
        return key.key_id == self.key_id and key.verify(self.base, self.signature)


def read_claims(
    message: SignedMessage, *, now: float, skew: float = SKEW, max_lifetime: float = MAX_LIFETIME
) -> list[Claim]:
    """Return the claims of a request, in the order of Signature-Input; those that break the profile are left out.

    Each signature is judged on its own. `max_lifetime` is the longest validity that is accepted, in seconds.
    """
    signatures = parse_dictionary(message.lines("signature"))
    found = parse_dictionary(message.lines("signature-input")).items()
    tagged = [(label, item) for label, item in found if item[1].get("tag") == TAG]
    claims: list[Claim] = []
    for label, item in tagged[:MAX_SIGNATURES]:
        signature = signatures[label][0] if label in signatures else None
        if isinstance(signature, bytes):
            claims += _claims(message, label, item, signature, _expiry(item[1], now, skew, max_lifetime))
    return claims


def _expiry(parameters: dict[str, Any], now: float, skew: float, max_lifetime: float) -> float | None:
    """Return when a signature is not accepted any more; None if it is not valid now, or valid for too long."""
    created, expires = parameters.get("created"), parameters.get("expires")
    if type(created) is not int or type(expires) is not int or not created <= expires <= created + max_lifetime:
        return None
    return expires + skew if created - skew <= now < expires + skew else None


def _claims(message: SignedMessage, label: str, item: Item, signature: bytes, expires: float | None) -> Iterator[Claim]:
    components, parameters = item
    key_id, nonce = parameters.get("keyid"), parameters.get("nonce", "")
    is_list = isinstance(components, list) and len(components) <= MAX_COMPONENTS
    if (
        expires is None
        or not is_list
        or parameters.get("alg", ALGORITHM) != ALGORITHM
        or not isinstance(key_id, str)
        or not isinstance(nonce, str)
    ):
        return
    agent = _covered_agent(message, label, components)
    if agent is None or not any(value in {"@authority", "@target-uri"} and not given for value, given in components):
        return
    try:
        base = signature_base(item, partial(component_value, message))
    except NoComponent:
        return
    is_narrow = not {value for value, _ in components} <= {"@authority", _FIELD}
    yield Claim(agent, key_id, base, signature, expires, nonce, is_narrow)


def _covered_agent(message: SignedMessage, label: str, components: list[Item]) -> AgentUrl | None:
    """Return the agent that a signature covers: the member of its label, or the only one, or the bare String."""
    covered = [given for value, given in components if value == _FIELD]
    lines = message.lines(_FIELD)
    if len(lines) == 1 and lines[0].startswith('"'):
        # "treat it as a dictionary with a single member whose key is the label of the signature covering it"
        return _url(parse_string(lines[0])) if covered == [{}] else None
    keys = [given["key"] for given in covered if set(given) == {"key"}]
    # An intermediary may relabel a signature, but not the member that it covers.
    key = label if label in keys else keys[0] if len(keys) == 1 else ""
    return _url(parse_dictionary(lines).get(key))


def _url(item: Item | None) -> AgentUrl | None:
    """Return the URL of a member: "A verifier MUST ignore a member that carries parameters"."""
    return agent_url(item[0]) if item is not None and type(item[0]) is str and not item[1] else None
