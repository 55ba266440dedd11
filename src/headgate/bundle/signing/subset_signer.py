"""Sign a subset of a bundle's responses: the signatures section, and the responses as they must then be (3.3.3).

Of a payload its Digest of `mi-sha256-03` is signed, so a signed response is stored in that content coding, as by the
reference signer. A response that is stored so already stays as it is, and so do earlier signatures.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from headgate.bundle.format import cbor, merkle_integrity
from headgate.bundle.format.headers import encode_stored_headers, join_header_map
from headgate.bundle.layout import VariantEntry
from headgate.bundle.model import Location, Metadata, VariantSet
from headgate.bundle.reader import Bundle, reject_overlapping_responses
from headgate.bundle.signing import keys
from headgate.bundle.signing.keys import AugmentedCertificate, CertificateNames, host_of
from headgate.bundle.signing.signed_subset import (
    MAX_LIFETIME,
    RawResponse,
    RawResponses,
    ResourceIntegrity,
    SignedSubset,
    SubsetEntry,
    signed_message,
    write_subset,
)
from headgate.bundle.variants import parse_variants, variant_keys
from headgate.errors import ConfigurationError, HeadgateError
from headgate.http.url import has_fragment, parse_url

_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999, the last date that can be formatted."""


class SigningRequest(Struct, frozen=True):
    """What to sign, and with which key."""

    chain: tuple[AugmentedCertificate, ...]
    """The signing certificate comes first."""
    key: keys.PrivateKey
    validity_url: str
    """Where readers may ask for newer signatures: https, at a host that the certificate names."""
    date: int
    """The start of validity, in seconds since 1970."""
    expires: int
    """The end of validity, at most seven days after `date`."""
    urls: Collection[str] | None = None
    """Which of the bundle's URLs; None for all whose hosts the certificate names."""


class SignedResponse(Struct, frozen=True):
    """A response as the signed bundle stores it."""

    header_map: bytes
    header_sha256: bytes
    payload: memoryview | merkle_integrity.MiEncoded
    length: int
    """Bytes of the payload."""


class SignedBundle(Struct, frozen=True):
    """The parts of the bundle with its new signature."""

    section: bytes
    """The signatures section, with earlier signatures."""
    urls: tuple[str, ...]
    """The URLs that are signed."""
    stored: tuple[SignedResponse, ...]
    """Every response of the bundle, in file order."""
    index: Mapping[str, int | VariantEntry]
    """From each URL of the bundle to its responses, by their index in `stored`."""


def sign_subset(bundle: Bundle, request: SigningRequest) -> SignedBundle:
    """Sign the responses of some of a bundle's URLs.

    Raises `ConfigurationError` for a request that readers refuse and for a key that is not the certificate's,
    `HeadgateError` for a bundle that cannot hold the signature, `ResponseError` for a response that cannot be read.
    """
    names = _check_certificate(request)
    _check_bundle(bundle)
    reject_overlapping_responses(bundle)
    validity_url = _check_request(request, names)
    urls = _chosen(bundle.metadata, request, names)
    storing = _Storing(bundle, urls)
    requests = bundle.metadata.requests
    signed = write_subset(
        SignedSubset(
            validity_url,
            hashlib.sha256(request.chain[0].der).digest(),
            request.date,
            request.expires,
            {url: storing.subset(url, requests[url]) for url in urls},
        )
    )
    section = _section(bundle.metadata, request, signed)
    index = {url: storing.entry(url, found) for url, found in requests.items()}
    return SignedBundle(section, urls, tuple(storing.stored), index)


def _check_certificate(request: SigningRequest) -> CertificateNames:
    if not keys.is_p256(request.key):
        raise ConfigurationError(
            "responses are signed by a P-256 key, and this is Ed25519, which is for integrity blocks: "
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256"
        )
    certificate = request.chain[0]
    try:
        belongs = certificate.certificate.public_key() == request.key.public_key()
    except Exception:
        # The library raises for an unknown kind of key, which is not this one.
        belongs = False
    if not belongs:
        raise ConfigurationError("the key is not that of the first certificate; put the certificate that signs first")
    return certificate.names


def _check_bundle(bundle: Bundle) -> None:
    if bundle.metadata.version == "b2":
        raise HeadgateError("b2 has no signatures section; sign it with an integrity block, or convert it to b1")
    if bundle.integrity_block is not None:
        raise HeadgateError("the bundle's integrity block would no longer hold; remove it first")


def _check_request(request: SigningRequest, names: CertificateNames) -> str:
    """Check the dates and the validity URL, and give the latter in normal form."""
    date, expires = request.date, request.expires
    if not 0 <= date < expires <= _LAST_SECOND:
        raise ConfigurationError(f"the signature would expire at {expires}, which is not after its date, {date}")
    if expires - date > MAX_LIFETIME:
        days = (expires - date) / 86_400
        raise ConfigurationError(f"the signature would be valid for {days:.4g} days; readers take seven at most")
    url = parse_url(request.validity_url)
    if url is None or not url.startswith("https://") or has_fragment(url):
        raise ConfigurationError(f"the validity URL {request.validity_url!r} is not an https URL without a fragment")
    if not names.cover(host_of(url)):
        raise ConfigurationError(
            f"the certificate does not name the host of the validity URL {url}; it names {_named(names)}"
        )
    return url


def _chosen(metadata: Metadata, request: SigningRequest, names: CertificateNames) -> tuple[str, ...]:
    if request.urls is None:
        urls = tuple(url for url in metadata.requests if names.cover(host_of(url)))
        if not urls:
            raise HeadgateError(f"the certificate names {_named(names)}, and the bundle has no URL of these hosts")
        return urls
    chosen: dict[str, None] = {}
    for text in request.urls:
        url = parse_url(text)
        if url is None or url not in metadata.requests:
            raise ConfigurationError(f"{text} is not in the bundle, so it cannot be signed")
        if not names.cover(host_of(url)):
            raise ConfigurationError(f"the certificate does not name the host of {url}; it names {_named(names)}")
        chosen[url] = None
    if not chosen:
        raise ConfigurationError("no URL to sign was given")
    return tuple(chosen)


class _Storing:
    """The responses of a bundle as they are stored once some of its URLs are signed.

    One that URLs share is stored once, or a small bundle could fill any disk; and once more, as it was, where some of
    these URLs are not signed.
    """

    stored: list[SignedResponse]
    """Every response, in file order."""

    def __init__(self, bundle: Bundle, urls: Collection[str]) -> None:
        self.stored = []
        self._responses = RawResponses(bundle)
        self._signed = frozenset(urls)
        self._proofs: dict[Location, merkle_integrity.MiEncoded | None] = {}
        self._known: dict[tuple[Location, bool], int] = {}
        listed = sorted(bundle.locations(), key=lambda entry: entry[2].offset)
        self._ordinals = {(url, key): self._ordinal(url, location) for url, key, location in listed}

    def subset(self, url: str, found: Location | VariantSet) -> SubsetEntry:
        """Give what is signed of a URL."""
        variants = found.variants.encode("latin-1") if isinstance(found, VariantSet) else b""
        variant_keys = list(found.locations) if isinstance(found, VariantSet) else [None]
        stored = [self.stored[self._ordinals[url, key]] for key in variant_keys]
        return SubsetEntry(
            variants, tuple(ResourceIntegrity(one.header_sha256, merkle_integrity.PAYLOAD_INTEGRITY) for one in stored)
        )

    def entry(self, url: str, found: Location | VariantSet) -> int | VariantEntry:
        """Give the index entry of a URL."""
        if isinstance(found, Location):
            return self._ordinals[url, None]
        # A value that an axis has twice makes a key twice, and takes two places.
        keys = variant_keys(axis.values for axis in parse_variants(found.variants) or ())
        return VariantEntry(found.variants.encode("latin-1"), [self._ordinals[url, key] for key in keys])

    def _ordinal(self, url: str, location: Location) -> int:
        proven = self._proof(url, location) if url in self._signed else None
        place = location, proven is not None
        if place not in self._known:
            self._known[place] = len(self.stored)
            self.stored.append(_stored(self._responses.load(location), proven))
        return self._known[place]

    def _proof(self, url: str, location: Location) -> merkle_integrity.MiEncoded | None:
        if location not in self._proofs:
            self._proofs[location] = _proven(url, self._responses.load(location))
        return self._proofs[location]


def _stored(response: RawResponse, proven: merkle_integrity.MiEncoded | None) -> SignedResponse:
    if proven is None:
        headers, payload, length = bytes(response.header_map), response.payload, len(response.payload)
        return SignedResponse(headers, hashlib.sha256(headers).digest(), payload, length)
    headers = join_header_map(encode_stored_headers(response.status, _proven_headers(response.headers, proven)))
    return SignedResponse(headers, hashlib.sha256(headers).digest(), proven, proven.length)


def _proven(url: str, response: RawResponse) -> merkle_integrity.MiEncoded | None:
    """Compute the proofs of a payload; None if it has them."""
    digest = response.headers.get("digest")
    if digest is None:
        return merkle_integrity.mi_encode(response.payload)
    proof = merkle_integrity.parse_mi_digest(digest)
    if proof is None or merkle_integrity.without_mi_coding(response.headers.get("content-encoding", "")) is None:
        raise HeadgateError(
            f"{url} has a Digest header, {digest[:80]!r}; signing would make it invalid; remove it first"
        )
    try:
        merkle_integrity.verify_payload(response.payload, proof)
    except merkle_integrity.MerkleIntegrityError as error:
        raise HeadgateError(f"{url} does not match its Digest header: {error}") from None
    return None


def _proven_headers(headers: Mapping[str, str], proven: merkle_integrity.MiEncoded) -> dict[str, str]:
    codings = headers.get("content-encoding")
    changed = {
        "content-encoding": f"{codings}, {merkle_integrity.MI_CODING}" if codings else merkle_integrity.MI_CODING,
        "digest": proven.digest,
    }
    if "content-length" in headers:
        changed["content-length"] = str(proven.length)
    return {**headers, **changed}


def _section(metadata: Metadata, request: SigningRequest, signed: bytes) -> bytes:
    """Encode the signatures section: existing authorities are shared, vouched subsets are kept."""
    new = dict.fromkeys(one.item for one in request.chain if one.item not in metadata.authorities)
    authorities = [*metadata.authorities, *new]
    signature = keys.sign(request.key, signed_message(signed))
    entries = [(one.authority, one.sig, one.signed) for one in metadata.vouched_subsets]
    entry = (authorities.index(request.chain[0].item), signature, signed)
    if entry not in entries:
        entries.append(entry)
    written = [cbor.encode({"authority": index, "sig": sig, "signed": text}) for index, sig, text in entries]
    return cbor.array([cbor.array(authorities), cbor.array(written)])


def _named(names: CertificateNames) -> str:
    listed = sorted(names.hosts | names.addresses)
    return ", ".join(listed[:8]) or "no host"
