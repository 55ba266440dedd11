"""The directory in which an agent publishes its keys: a JSON Web Key Set, which may be signed with each of them.

The signatures of a directory prove that its server has the keys (appendix "Validating the Domain Binding"). They
are optional where the directory is fetched from its own URL. A key whose signature is wrong is not used.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec

from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import freshness
from headgate.http.media_type import extract_essence
from headgate.identity.fields import Item, parse_dictionary, serialize
from headgate.identity.keys import ALGORITHM, PublicKey, SigningKey, public_key
from headgate.identity.message import NoComponent, SignedMessage, component_value, normal_authority, signature_base
from headgate.identity.url import AgentUrl

MEDIA_TYPE: Final = "application/http-message-signatures-directory+json"
"""The media type of a well-known directory."""

MAX_DIRECTORY_SIZE: Final = 65_536
"""Maximum bytes of a directory, decoded."""

MAX_KEYS: Final = 32
"""Maximum keys of a directory."""

MIN_FRESHNESS: Final = 60.0
"""Seconds before a directory is fetched again, whatever its response says."""

MAX_FRESHNESS: Final = 86_400.0
"""Seconds after which a directory is fetched again, whatever its response says."""

STALE_FOR: Final = 86_400.0
"""Seconds for which keys are used after their directory should have been fetched again."""

DEFAULT_FRESHNESS: Final = 3_600.0
"""Seconds for which a directory is fresh if its response does not say."""

TAG: Final = "http-message-signatures-directory"
"""The tag of the signatures of a directory."""

_AUTHORITY: Final[Item] = ("@authority", {"req": True})
_DIGEST: Final[Item] = ("content-digest", {})

# "Verifiers SHOULD reject known test keys": that of RFC 9421, appendix B.1.4, whose private key is public.
_TEST_KEYS: Final = frozenset({"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"})


class InvalidDirectory(ValueError):
    """A response is not a directory; the text is a clause that says why."""


class KeyDirectory(msgspec.Struct, frozen=True):
    """The keys that one URL provides."""

    keys: dict[str, PublicKey]
    """The keys by their id."""
    fresh_until: float
    """The instant from which it should be fetched again."""

    def key(self, key_id: str, *, now: float) -> PublicKey | None:
        """Return a key that is valid now, at most `STALE_FOR` after the directory should have been fetched again."""
        key = self.keys.get(key_id)
        is_valid = key is not None and key.not_before <= now < min(key.expires, self.fresh_until + STALE_FOR)
        return key if is_valid else None


def parse_directory(agent: AgentUrl, fields: Pairs, body: bytes, *, now: float) -> KeyDirectory:
    """Read the response with status 200 to a request for the keys of an agent; malformed keys are left out.

    Raises `InvalidDirectory`.
    """
    essence = extract_essence(lines_of(fields, "content-type"))
    if agent.is_well_known and essence != MEDIA_TYPE:
        raise InvalidDirectory(f"the media type is {(essence or 'missing')[:80]}, not {MEDIA_TYPE}")
    if len(body) > MAX_DIRECTORY_SIZE:
        raise InvalidDirectory(f"it is longer than {MAX_DIRECTORY_SIZE} bytes")
    try:
        members = msgspec.json.decode(body, type=_JwkSet).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidDirectory("it is not a JSON Web Key Set") from None
    if len(members) > MAX_KEYS:
        raise InvalidDirectory(f"it has more than {MAX_KEYS} keys")
    keys = {key.key_id: key for member in members if (key := _key(member, agent)) is not None}
    for key_id in _with_wrong_proof(agent, fields, body, keys, now):
        keys.pop(key_id, None)
    given = freshness(fields, now=now)
    lifetime = DEFAULT_FRESHNESS if given.lifetime is None else given.lifetime - given.age
    return KeyDirectory(keys, now + min(max(lifetime, MIN_FRESHNESS), MAX_FRESHNESS))


def write_directory(keys: Iterable[PublicKey]) -> bytes:
    """Return the directory of some keys, to be served with the fields that `sign_directory` returns."""
    return json.dumps({"keys": [key.to_jwk() for key in keys]}).encode()


def sign_directory(
    body: bytes, keys: Sequence[SigningKey], authority: str, *, now: float, lifetime: float = MAX_FRESHNESS
) -> list[tuple[str, str]]:
    """Return the fields with which to serve a directory at an authority: a signature with each of its keys."""
    digest = f"sha-256=:{base64.b64encode(sha256(body).digest()).decode()}:"
    message = SignedMessage("", authority, "", ((_DIGEST[0], digest),))
    inputs, signatures = [], []
    for number, key in enumerate(keys, 1):
        times = {"created": int(now), "expires": int(now + lifetime)}
        signed: Item = ([_AUTHORITY, _DIGEST], {**times, "keyid": key.key_id, "alg": ALGORITHM, "tag": TAG})
        signature = key.sign(signature_base(signed, partial(_value, message)))
        inputs.append(f"key{number}={serialize(signed)}")
        signatures.append(f"key{number}={serialize((signature, {}))}")
    return [
        ("Content-Type", MEDIA_TYPE),
        ("Content-Digest", digest),
        ("Signature-Input", ", ".join(inputs)),
        ("Signature", ", ".join(signatures)),
    ]


class _JwkSet(msgspec.Struct):
    keys: list[object]


def _key(member: object, agent: AgentUrl) -> PublicKey | None:
    """Return a key of a directory; None for one that is malformed, and for the test key of RFC 9421."""
    key = public_key(member)
    if key is None or key.key_id in _TEST_KEYS:
        return None
    given = member.get("kid", key.key_id) if isinstance(member, dict) else None
    # "JWK MAY carry a kid. In this case, it MUST be set to the thumbprint". Elsewhere it is the operator's own label.
    return key if given == key.key_id or not agent.is_well_known else None


def _with_wrong_proof(
    agent: AgentUrl, fields: Pairs, body: bytes, keys: dict[str, PublicKey], now: float
) -> Iterator[str]:
    """Yield the ids of keys for which the directory has a signature that is wrong."""
    lower = tuple((name.lower(), value) for name, value in fields)
    message = SignedMessage("", agent.fetch.partition("://")[2].partition("/")[0], "", lower)
    signatures = parse_dictionary(message.lines("signature"))
    for label, item in parse_dictionary(message.lines("signature-input")).items():
        key, expires = keys.get(str(item[1].get("keyid"))), item[1].get("expires")
        is_fresh = not isinstance(expires, int) or now < expires
        if key is None or not is_fresh or item[1].get("tag") != TAG or label not in signatures:
            continue
        created = item[1].get("created")
        # "A verifier MUST reject a directory response signature whose created is in the future".
        is_proof = isinstance(created, int) and created <= now and _covers(message, item[0], body)
        if not is_proof or not _is_signed_by(key, message, item, signatures[label][0]):
            yield key.key_id


def _covers(message: SignedMessage, components: object, body: bytes) -> bool:
    """Return whether a signature covers the authority, and no digest but that of the body."""
    digest = parse_dictionary(message.lines(_DIGEST[0])).get("sha-256")
    is_right = digest is not None and digest[0] == sha256(body).digest()
    return isinstance(components, list) and _AUTHORITY in components and (is_right or _DIGEST not in components)


def _is_signed_by(key: PublicKey, message: SignedMessage, item: Item, signature: object) -> bool:
    try:
        return isinstance(signature, bytes) and key.verify(signature_base(item, partial(_value, message)), signature)
    except NoComponent:
        return False


def _value(response: SignedMessage, component: Item) -> str:
    """Return the value of a component of a response; of its request, only the authority is known."""
    if component == _AUTHORITY:
        return normal_authority(response.authority)
    if component[1] or str(component[0]).startswith("@"):
        raise NoComponent(f"no component {serialize(component)}")
    return component_value(response, component)
