"""Sign a subset of a bundle's responses: the new signatures section, and the responses as they are then stored (3.3.3).

A signature covers the Digest of a payload in `mi-sha256-03`, so a signed response is stored in that content coding, as
the reference signer does. Responses that are stored so already stay unchanged, and so do earlier signatures.
"""

import hashlib
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from headgate.bundle.files.payloads import PreparedPayload, SizedChunks
from headgate.bundle.files.writer import Responses
from headgate.bundle.format import cbor
from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.headers import encode_stored_headers, join_header_map
from headgate.bundle.format.incremental import drive
from headgate.bundle.format.merkle_integrity import (
    MI_CODING,
    PAYLOAD_INTEGRITY,
    MiEncoded,
    mi_encode,
    parse_mi_digest,
    payload_layout_parser,
    without_mi_coding,
)
from headgate.bundle.layout import VariantEntry, stored_entry
from headgate.bundle.model import Location, Metadata, ResponseHead, VariantSet, variants_of
from headgate.bundle.reader import Bundle, reject_overlapping_responses
from headgate.bundle.signing import keys
from headgate.bundle.signing.keys import AugmentedCertificate, CertificateNames, certificate_host
from headgate.bundle.signing.signed_subset import (
    MAX_LIFETIME,
    ResourceIntegrity,
    SignedSubset,
    SubsetEntry,
    load_signed,
    signed_message,
    write_subset,
)
from headgate.errors import ConfigurationError, HeadgateError, fail_if
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


class SignedBundle(Struct, frozen=True):
    """The parts of the bundle with its new signature."""

    section: bytes
    """The signatures section, with earlier signatures."""
    urls: tuple[str, ...]
    """The URLs that are signed."""
    responses: Responses
    """Every response of the bundle, in file order."""
    index: Mapping[str, int | VariantEntry]
    """From each URL of the bundle to its responses, by their ordinal in `responses`."""


def sign_subset(bundle: Bundle, request: SigningRequest) -> SignedBundle:
    """Sign the responses of some of a bundle's URLs.

    Raises `ConfigurationError` for a request that readers refuse and for a key that is not the certificate's,
    `HeadgateError` for a bundle that cannot hold the signature, `ResponseError` for a response that cannot be read.
    """
    names = _check_certificate(request)
    _check_bundle(bundle)
    reject_overlapping_responses(bundle)
    validity_url = _check_request(request, names)
    urls = _select_urls(bundle.metadata, request, names)
    responses = _StoredResponses(bundle, urls)
    requests = bundle.metadata.requests
    signed = write_subset(
        SignedSubset(
            validity_url,
            hashlib.sha256(request.chain[0].der).digest(),
            request.date,
            request.expires,
            {url: responses.subset_entry(requests[url]) for url in urls},
        )
    )
    section = _section(bundle.metadata, request, signed)
    index = {url: stored_entry(found, partial(responses.ordinal, url)) for url, found in requests.items()}
    return SignedBundle(section, urls, responses.written, index)


def _check_certificate(request: SigningRequest) -> CertificateNames:
    fail_if(
        not keys.is_p256(request.key),
        "responses are signed by a P-256 key, and this is Ed25519, which is for integrity blocks: "
        "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
    )
    certificate = request.chain[0]
    try:
        belongs = certificate.certificate.public_key() == request.key.public_key()
    except Exception:
        # The library raises for an unknown kind of key, which is not this one.
        belongs = False
    fail_if(not belongs, "the key is not that of the first certificate; put the certificate that signs first")
    return certificate.names


def _check_bundle(bundle: Bundle) -> None:
    if bundle.metadata.version == "b2":
        raise HeadgateError(
            "b2 has no signatures section; sign it with an integrity block, or convert it to b1, "
            "which needs a manifest (--manifest-url)"
        )
    if bundle.integrity_block is not None:
        raise HeadgateError("signing makes the bundle's integrity block invalid; remove it first")


def _check_request(request: SigningRequest, names: CertificateNames) -> str:
    """Check the dates and the validity URL; return the latter in normal form."""
    date, expires = request.date, request.expires
    fail_if(
        not 0 <= date < expires <= _LAST_SECOND,
        f"the signature would expire at {expires}, which is not after its date, {date}",
    )
    if expires - date > MAX_LIFETIME:
        days = (expires - date) / 86_400
        raise ConfigurationError(f"the signature would be valid for {days:.4g} days; readers take seven at most")
    url = parse_url(request.validity_url)
    if url is None or not url.startswith("https://") or has_fragment(url):
        raise ConfigurationError(f"the validity URL {request.validity_url!r} is not an https URL without a fragment")
    fail_if(
        not names.cover(certificate_host(url)),
        f"the certificate does not name the host of the validity URL {url}; it names {_list_names(names)}",
    )
    return url


def _select_urls(metadata: Metadata, request: SigningRequest, names: CertificateNames) -> tuple[str, ...]:
    if request.urls is None:
        urls = tuple(url for url in metadata.requests if names.cover(certificate_host(url)))
        if not urls:
            raise HeadgateError(f"the certificate names {_list_names(names)}, and the bundle has no URL of these hosts")
        return urls
    selected: dict[str, None] = {}
    for text in request.urls:
        url = parse_url(text)
        if url is None or url not in metadata.requests:
            raise ConfigurationError(f"{text} is not in the bundle, so it cannot be signed")
        if not names.cover(certificate_host(url)):
            raise ConfigurationError(f"the certificate does not name the host of {url}; it names {_list_names(names)}")
        selected[url] = None
    fail_if(not selected, "no URL to sign was given")
    return tuple(selected)


class _StoredResponses:
    """Every response of a bundle as the signed bundle stores it: as `mi-sha256-03` where a URL of it is signed.

    A response that several URLs share is stored once, so that a small bundle does not become a large one; it is stored
    twice, coded and unchanged, where only some of these URLs are signed.
    """

    def __init__(self, bundle: Bundle, urls: Collection[str]) -> None:
        self.written = Responses()
        """In file order."""
        self._bundle = bundle
        self._hashes: list[bytes] = []
        """The `header-sha256` of each response that is written."""
        self._signed: dict[Location, int] = {}
        """From the location of a signed response to its ordinal."""
        self._unchanged: dict[Location, int] = {}
        """The same for responses that are stored as before."""
        self._urls = frozenset(urls)
        for url, _, location in sorted(bundle.metadata.locations(), key=lambda entry: entry[2].offset):
            if url not in self._urls:
                self._keep(location)
            elif location not in self._signed:
                self._sign(url, location)

    def ordinal(self, url: str, location: Location) -> int:
        """Return the ordinal of a response as it is stored for a URL."""
        return self._signed[location] if url in self._urls else self._unchanged[location]

    def subset_entry(self, found: Location | VariantSet) -> SubsetEntry:
        """Return what is signed for a URL."""
        variants, locations = variants_of(found)
        hashes = [self._hashes[self._signed[location]] for location in locations.values()]
        integrities = tuple(ResourceIntegrity(header_sha256, PAYLOAD_INTEGRITY) for header_sha256 in hashes)
        return SubsetEntry(variants.encode("latin-1"), integrities)

    def _sign(self, url: str, location: Location) -> None:
        head, _ = load_signed(self._bundle, location)
        coded = _encode_payload(url, self._bundle, head)
        if coded is None:
            self._signed[location] = self._keep(location)
        else:
            headers = encode_stored_headers(head.status, _coded_headers(head.stored_headers, coded))
            self._signed[location] = self._append(join_header_map(headers), SizedChunks(coded, coded.length))

    def _keep(self, location: Location) -> int:
        if location not in self._unchanged:
            head, header_map = load_signed(self._bundle, location)
            payload = SizedChunks(self._bundle.pieces(head.payload), head.payload.length)
            self._unchanged[location] = self._append(bytes(header_map), payload)
        return self._unchanged[location]

    def _append(self, header_map: bytes, payload: PreparedPayload) -> int:
        self._hashes.append(hashlib.sha256(header_map).digest())
        self.written.append(header_map, payload)
        return len(self._hashes) - 1


def _encode_payload(url: str, bundle: Bundle, head: ResponseHead) -> MiEncoded | None:
    """Encode a payload as `mi-sha256-03`; return None for one that is stored so, once its proofs are verified."""
    digest = head.stored_headers.get("digest")
    if digest is None:
        return mi_encode(partial(bundle.read, head.payload.offset, head.payload.length))
    proof = parse_mi_digest(digest)
    if proof is None or without_mi_coding(head.stored_headers.get("content-encoding", "")) is None:
        raise HeadgateError(
            f"{url} has a Digest header, {digest[:80]!r}; signing would make it invalid; remove it first"
        )
    try:
        drive(payload_layout_parser(head.payload, proof), bundle.read)
    except StepError as error:
        raise HeadgateError(f"{url} does not match its Digest header: {error.reason}") from None
    return None


def _coded_headers(headers: Mapping[str, str], coded: MiEncoded) -> dict[str, str]:
    codings = headers.get("content-encoding")
    changed = {"content-encoding": f"{codings}, {MI_CODING}" if codings else MI_CODING, "digest": coded.digest}
    if "content-length" in headers:
        changed["content-length"] = str(coded.length)
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


def _list_names(names: CertificateNames) -> str:
    listed = sorted(names.hosts | names.addresses)
    return ", ".join(listed[:8]) or "no host"
