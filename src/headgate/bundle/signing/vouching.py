"""Signing a subset of a bundle's responses: the signatures section, and the responses as they must then be (3.3.3).

What is signed of a payload is its Digest of `mi-sha256-03`, so a response that is signed is stored in that content
coding, as the reference signer does it. A response that already is, because somebody signed it before, stays as it is,
and so do their signatures.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct

from headgate.bundle import cbor, mice
from headgate.bundle.extent import check_extent
from headgate.bundle.headers import HeaderEncoder, header_map
from headgate.bundle.metadata import Location, Metadata, Negotiated
from headgate.bundle.reader import Bundle
from headgate.bundle.signing import keys
from headgate.bundle.signing.chain import AugmentedCertificate
from headgate.bundle.signing.names import Names, host_of
from headgate.bundle.signing.stored import StoredResponse, StoredResponses
from headgate.bundle.signing.subset import (
    LONGEST_LIFETIME,
    Integrity,
    SignedSubset,
    Subset,
    signed_message,
    write_subset,
)
from headgate.errors import ConfigurationError, HeadgateError
from headgate.http.url import has_fragment, parse_url

__all__ = ["Statement", "Stored", "Vouched", "sign_vouched"]

_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999; later dates have no name."""


class Statement(Struct, frozen=True):
    """What is to be signed, and by whom."""

    chain: tuple[AugmentedCertificate, ...]
    """The certificate that signs comes first."""
    key: keys.PrivateKey
    validity_url: str
    """Where readers may ask for newer signatures: https, at a host that the certificate names."""
    date: int
    """Seconds since 1970, from when on the signature is valid."""
    expires: int
    """Until when: at most seven days after `date`."""
    urls: Collection[str] | None = None
    """Which of the bundle's URLs; None for all whose hosts the certificate names."""


class Stored(Struct, frozen=True):
    """A response as the signed bundle stores it."""

    url: str
    variants: str | None
    variant_keys: tuple[str, ...] | None
    """The keys that share it."""
    status: int
    headers: Mapping[str, str]
    payload: memoryview | mice.Proven
    length: int


class Vouched(Struct, frozen=True):
    """What a writer needs for the bundle with its new signature."""

    section: bytes
    """The signatures section, with the signatures that were there before."""
    urls: tuple[str, ...]
    """What is vouched for."""
    stored: tuple[Stored, ...]
    """Every response of the bundle, in file order."""


def sign_vouched(bundle: Bundle, statement: Statement) -> Vouched:
    """Sign the responses of some of a bundle's URLs.

    Raises `ConfigurationError` for a statement that no reader would take and for a key that is not the certificate's,
    `HeadgateError` for a bundle that cannot hold the signature, `ResponseError` for a response that cannot be read.
    """
    names = _check_certificate(statement)
    _check_bundle(bundle)
    check_extent(bundle)
    validity_url = _check_statement(statement, names)
    urls = _chosen(bundle.metadata, statement, names)
    stored = tuple(_stored(bundle, urls))
    signed = write_subset(
        SignedSubset(
            validity_url,
            hashlib.sha256(statement.chain[0].der).digest(),
            statement.date,
            statement.expires,
            _hashes(bundle.metadata, urls, stored),
        )
    )
    section = _section(bundle.metadata, statement, signed)
    return Vouched(section, urls, stored)


def _check_certificate(statement: Statement) -> Names:
    if not keys.is_p256(statement.key):
        raise ConfigurationError(
            "responses are signed by a P-256 key, and this is Ed25519, which is for integrity blocks: "
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256"
        )
    certificate = statement.chain[0]
    try:
        belongs = certificate.certificate.public_key() == statement.key.public_key()
    except Exception:
        # A key of a kind that the library does not know is surely not this one.
        belongs = False
    if not belongs:
        raise ConfigurationError("the key is not that of the first certificate; put the certificate that signs first")
    return certificate.names


def _check_bundle(bundle: Bundle) -> None:
    if bundle.metadata.version == "b2":
        raise HeadgateError("b2 has no signatures section; sign it with an integrity block, or convert it to b1")
    if bundle.integrity_block is not None:
        raise HeadgateError("the bundle's integrity block would no longer hold; remove it first")


def _check_statement(statement: Statement, names: Names) -> str:
    """Check the dates and the validity URL, and give the latter in normal form."""
    date, expires = statement.date, statement.expires
    if not 0 <= date < expires <= _LAST_SECOND:
        raise ConfigurationError(f"the signature would expire at {expires}, which is not after its date, {date}")
    if expires - date > LONGEST_LIFETIME:
        days = (expires - date) / 86_400
        raise ConfigurationError(f"the signature would be valid for {days:.4g} days; readers take seven at most")
    url = parse_url(statement.validity_url)
    if url is None or not url.startswith("https://") or has_fragment(url):
        raise ConfigurationError(f"the validity URL {statement.validity_url!r} is no https URL without a fragment")
    if not names.cover(host_of(url)):
        raise ConfigurationError(
            f"the certificate does not name the host of the validity URL {url}; it names {_named(names)}"
        )
    return url


def _chosen(metadata: Metadata, statement: Statement, names: Names) -> tuple[str, ...]:
    if statement.urls is None:
        urls = tuple(url for url in metadata.requests if names.cover(host_of(url)))
        if not urls:
            raise HeadgateError(f"the certificate names {_named(names)}, and the bundle has no URL there")
        return urls
    chosen: dict[str, None] = {}
    for text in statement.urls:
        url = parse_url(text)
        if url is None or url not in metadata.requests:
            raise ConfigurationError(f"{text} is not in the bundle, so it cannot be signed")
        if not names.cover(host_of(url)):
            raise ConfigurationError(f"the certificate does not name the host of {url}; it names {_named(names)}")
        chosen[url] = None
    if not chosen:
        raise ConfigurationError("there is no URL to sign")
    return tuple(chosen)


def _stored(bundle: Bundle, urls: Collection[str]) -> Iterator[Stored]:
    """Yield each response of each URL once, in file order, with the keys that share it."""
    signed = set(urls)
    responses = StoredResponses(bundle)
    places: dict[tuple[str, int], tuple[Location, list[str]]] = {}
    for url, variant_key, location in bundle.locations():
        _, variant_keys = places.setdefault((url, location.offset), (location, []))
        if variant_key is not None:
            variant_keys.append(variant_key)
    for (url, _), (location, variant_keys) in places.items():
        response = responses.load(location)
        found = bundle.metadata.requests[url]
        variants = found.variants if isinstance(found, Negotiated) else None
        headers, payload = response.headers, response.payload
        new = _proven(url, response) if url in signed else None
        yield Stored(
            url,
            variants,
            tuple(variant_keys) if variants is not None else None,
            response.status,
            headers if new is None else _proven_headers(headers, new),
            payload if new is None else new,
            len(payload) if new is None else new.length,
        )


def _proven(url: str, response: StoredResponse) -> mice.Proven | None:
    """Prove a payload; None where it carries its proofs already."""
    digest = response.headers.get("digest")
    if digest is None:
        return mice.prove(response.payload)
    proof = mice.read_proof(digest)
    if proof is None or mice.without_coding(response.headers.get("content-encoding", "")) is None:
        raise HeadgateError(
            f"{url} has a Digest header, {digest[:80]!r}; signing would make it wrong, so drop it first"
        )
    try:
        mice.check(response.payload, proof)
    except mice.MiceError as error:
        raise HeadgateError(f"{url} is not what its Digest header says: {error}") from None
    return None


def _proven_headers(headers: Mapping[str, str], proven: mice.Proven) -> dict[str, str]:
    codings = headers.get("content-encoding")
    changed = {
        "content-encoding": f"{codings}, {mice.CODING}" if codings else mice.CODING,
        "digest": proven.digest,
    }
    if "content-length" in headers:
        changed["content-length"] = str(proven.length)
    return {**headers, **changed}


def _hashes(metadata: Metadata, urls: Collection[str], stored: Collection[Stored]) -> dict[str, Subset]:
    encoder = HeaderEncoder()
    by_key: dict[tuple[str, str | None], Integrity] = {}
    signed = set(urls)
    for one in stored:
        if one.url in signed:
            encoded = header_map(encoder.encode(one.status, one.headers))
            integrity = Integrity(hashlib.sha256(encoded).digest(), mice.PAYLOAD_INTEGRITY)
            by_key.update({(one.url, key): integrity for key in one.variant_keys or (None,)})
    hashes = {}
    for url in urls:
        found = metadata.requests[url]
        variants = found.variants.encode("latin-1") if isinstance(found, Negotiated) else b""
        variant_keys = list(found.locations) if isinstance(found, Negotiated) else [None]
        hashes[url] = Subset(variants, tuple(by_key[url, key] for key in variant_keys))
    return hashes


def _section(metadata: Metadata, statement: Statement, signed: bytes) -> bytes:
    """Write the signatures section: authorities that are there already are shared, vouched subsets are kept."""
    new = dict.fromkeys(one.item for one in statement.chain if one.item not in metadata.authorities)
    authorities = [*metadata.authorities, *new]
    signature = keys.sign(statement.key, signed_message(signed))
    entries = [(one.authority, one.sig, one.signed) for one in metadata.vouched_subsets]
    entry = (authorities.index(statement.chain[0].item), signature, signed)
    if entry not in entries:
        entries.append(entry)
    written = [cbor.encode({"authority": index, "sig": sig, "signed": text}) for index, sig, text in entries]
    return cbor.array([cbor.array(authorities), cbor.array(written)])


def _named(names: Names) -> str:
    listed = sorted(names.hosts | names.addresses)
    return ", ".join(listed[:8]) or "no host"
