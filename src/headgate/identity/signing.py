"""What an agent does: signs a request, also when it is asked to."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from headgate.errors import ConfigurationError, fail_if
from headgate.http.base64url import encode_base64url
from headgate.identity.fields import Item, parse_dictionary, serialize
from headgate.identity.keys import ALGORITHM, SigningKey
from headgate.identity.message import SignedMessage, component_value, signature_base
from headgate.identity.url import agent_url

TAG: Final = "web-bot-auth"
"""The tag of the signatures of agents."""

LIFETIME: Final = 300.0
"""Default seconds for which a signature is valid."""

MAX_LIFETIME: Final = 86_400.0
"""Longest lifetime of a signature in seconds."""

LABEL: Final = "sig1"
"""The label of the signature."""

_NONCE_SIZE: Final = 64
_COMPONENTS: Final[list[Item]] = [("@authority", {}), ("signature-agent", {"key": LABEL})]


class RequestSigner:
    """Signs the requests of one agent, whose keys are published at `url`.

    A `url` without a path stands for the well-known directory of its host. `entropy` returns so many unpredictable
    bytes, as `os.urandom` does; the nonce comes from it. `lifetime` is the validity of a signature in seconds. Raises
    `ConfigurationError` for an invalid URL or lifetime.
    """

    def __init__(
        self, key: SigningKey, url: str, *, entropy: Callable[[int], bytes], lifetime: float = LIFETIME
    ) -> None:
        agent = agent_url(url)
        fail_if(not 1 <= lifetime <= MAX_LIFETIME, f"lifetime must be from 1 to {MAX_LIFETIME:g} s, got {lifetime!r}")
        if agent is None:
            raise ConfigurationError(
                f"invalid agent URL {url!r:.80}; expected where its keys are, such as 'https://bot.example'"
            )
        self.key = key
        self.agent = agent
        """Where the keys of the agent are."""
        self._entropy = entropy
        self._lifetime = lifetime
        self._field = serialize((agent.fetch, {}))

    def sign(self, url_or_authority: str, *, now: float) -> list[tuple[str, str]]:
        """Return the fields that sign a request to an authority: Signature-Agent, Signature-Input and Signature.

        `url_or_authority` is the URL of the request, or its host with the port unless it is 443. A signature is for
        one request: make another one after a redirect and for a retry. Only requests over https may be signed.
        """
        authority = url_or_authority.partition("://")[2].partition("/")[0].partition("?")[0] or url_or_authority
        created = int(now)
        parameters = {
            "created": created,
            "expires": created + int(self._lifetime),
            "nonce": encode_base64url(self._entropy(_NONCE_SIZE)),
            "keyid": self.key.key_id,
            "alg": ALGORITHM,
            "tag": TAG,
        }
        signed = (_COMPONENTS, parameters)
        agent = f"{LABEL}={self._field}"
        message = SignedMessage("", authority.rpartition("@")[2], "", (("signature-agent", agent),))
        signature = self.key.sign(signature_base(signed, partial(component_value, message)))
        return [
            ("Signature-Agent", agent),
            ("Signature-Input", f"{LABEL}={serialize(signed)}"),
            ("Signature", f"{LABEL}={serialize((signature, {}))}"),
        ]


def accept_signature() -> str:
    """Return the value of Accept-Signature with which an origin asks for a signature (RFC 9421, section 5.1)."""
    return f"{LABEL}={serialize((_COMPONENTS, {'created': True, 'expires': True, 'keyid': True, 'tag': TAG}))}"


def asks_for_signature(lines: Iterable[str]) -> bool:
    """Return whether a response's Accept-Signature asks for a signature that `RequestSigner` makes."""
    return any(
        isinstance(wanted, list)
        and all(value in {"@authority", "signature-agent"} for value, _ in wanted)
        and parameters.get("tag", TAG) == TAG
        for wanted, parameters in parse_dictionary(lines).values()
    )
