"""Verify the signatures section (3.3.3); the document leaves to readers what makes a signature valid.

The checks are those of the signed exchanges draft and the reference verifier, and that the certificate names the URLs'
hosts. Without roots a signature is untrusted, unless the caller accepts any certificate.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509 import DNSName, IPAddress, verification
from msgspec import Struct

from headgate.bundle.format import cbor
from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.incremental import drive
from headgate.bundle.format.merkle_integrity import (
    MI_CODING,
    PAYLOAD_INTEGRITY,
    parse_mi_digest,
    payload_layout_parser,
)
from headgate.bundle.model import Location, VouchedSubset, variants_of
from headgate.bundle.reader import Bundle, reject_overlapping_responses
from headgate.bundle.signing import keys
from headgate.bundle.signing.keys import AugmentedCertificate, certificate_host, read_augmented
from headgate.bundle.signing.report import Reason, Signature
from headgate.bundle.signing.signed_subset import (
    MAX_LIFETIME,
    ResourceIntegrity,
    SignedSubset,
    SubsetEntry,
    load_signed,
    read_subset,
    signed_message,
)
from headgate.errors import HeadgateError, ResponseError
from headgate.http.url import parse_url

MAX_SUBSETS: Final = 1_000
"""Vouched subsets that are verified: a bundle of a megabyte can have thousands."""
MAX_CERTIFICATES: Final = 20
"""Signing certificates whose trust is checked, and certificates among which a chain is searched."""
_UNCHECKED: Final = (
    "whether the certificate was revoked, is in a log, or was issued for signing exchanges",
    "whether the signer chose the primary URL and the manifest URL: only their responses are signed",
)
_UNCHECKED_ROOT: Final = "whether the certificate leads to a trusted root"


class _InvalidError(Exception):
    """A signature is not valid."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(f"{reason}: {sentence}")


def _require(holds: object, reason: Reason, sentence: str) -> None:
    if not holds:
        raise _InvalidError(reason, sentence)


class _Signer(Struct, frozen=True):
    certificate: AugmentedCertificate
    key: EllipticCurvePublicKey
    sha256: bytes


def verify_subsets(
    bundle: Bundle, *, now: float, trust: Sequence[AugmentedCertificate] | None = ()
) -> tuple[Signature, ...]:
    """Verify each vouched subset by itself, at the time `now`; a certificate must be one of `trust`, or lead to one.

    With None any certificate is accepted. A bundle without vouched subsets has an empty result. Raises
    nothing for invalid signatures: they are results. Takes time linear in the size of the bundle.
    """
    verifier = _Verifier(bundle, now, trust)
    subsets = bundle.metadata.vouched_subsets
    found = [verifier.verify(vouched) for vouched in subsets[:MAX_SUBSETS]]
    if len(subsets) > MAX_SUBSETS:
        reason = f"{Reason.TOO_MANY_SIGNATURES}: {len(subsets)} signatures, only the first {MAX_SUBSETS} were checked"
        found.append(Signature("vouched-subset", valid=False, reason=reason))
    return tuple(found)


class _Verifier:
    """Verifies subsets of one bundle. Untrusted input controls how many there are, so each part is checked once."""

    def __init__(self, bundle: Bundle, now: float, trust: Sequence[AugmentedCertificate] | None) -> None:
        self._bundle = bundle
        self._now = now
        self._trust = trust
        self._overlap = ""
        """How the responses overlap; empty if they do not."""
        try:
            reject_overlapping_responses(bundle)
        except HeadgateError as error:
            self._overlap = str(error)
        # Bound to this object, which is gone when the bundle is verified.
        self._signer, self._stored = cache(self._read_signer), cache(self._read_response)
        self._distrust = cache(self._find_distrust)
        self._chains = 0

    def verify(self, vouched: VouchedSubset) -> Signature:
        urls: tuple[str, ...] = ()
        unchecked = (_UNCHECKED_ROOT, *_UNCHECKED) if self._trust is None else _UNCHECKED
        try:
            signer = _result(self._signer(vouched.authority))
            is_signed = keys.verify_signature(signer.key, vouched.sig, signed_message(vouched.signed))
            _require(is_signed, Reason.BAD_SIGNATURE, f"the key of authority {vouched.authority} did not sign this")
            subset = _subset(vouched, signer)
            urls = tuple(subset.subset_hashes)
            self._check_times(subset, signer)
            _check_validity_url(subset, signer)
            _require(not self._overlap, Reason.RESPONSES_NESTED, self._overlap)
            for url, entry in subset.subset_hashes.items():
                self._check_url(url, entry, signer)
            # Last: an untrusted signature is valid otherwise.
            if self._trust is not None:
                fault = self._distrust(vouched.authority, certificate_host(subset.validity_url))
                _require(not fault, Reason.UNTRUSTED, fault)
        except _InvalidError as wrong:
            return Signature("vouched-subset", valid=False, reason=str(wrong), urls=urls, unchecked=unchecked)
        return Signature("vouched-subset", valid=True, urls=urls, unchecked=unchecked)

    def _read_signer(self, authority: int) -> "_Signer | _InvalidError":
        authorities = self._bundle.metadata.authorities
        if authority >= len(authorities):
            return _InvalidError(Reason.AUTHORITY_OUT_OF_RANGE, f"authority {authority} of {len(authorities)}")
        try:
            certificate = read_augmented(cbor.Items(authorities[authority]))
            return _Signer(certificate, _p256_key(certificate), hashlib.sha256(certificate.der).digest())
        except cbor.CborError as error:
            return _InvalidError(Reason.CERTIFICATE_UNREADABLE, error.reason)
        except _InvalidError as wrong:
            return wrong

    def _check_times(self, subset: SignedSubset, signer: _Signer) -> None:
        date, expires, now = subset.date, subset.expires, self._now
        certificate = signer.certificate.certificate
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        ends_late = f"it expires at {_time(expires)}, before its date {_time(date)}"
        _require(date <= expires, Reason.EXPIRES_BEFORE_DATE, ends_late)
        lifetime = expires - date
        _require(lifetime <= MAX_LIFETIME, Reason.LIFETIME_TOO_LONG, f"{lifetime} seconds, more than {MAX_LIFETIME}")
        _require(date <= now, Reason.NOT_YET_VALID, f"its date is {_time(date)}")
        _require(now <= expires, Reason.EXPIRED, f"it expired at {_time(expires)}")
        _require(begin.timestamp() <= now, Reason.CERTIFICATE_NOT_YET_VALID, f"it is valid from {begin:%FT%TZ}")
        _require(now <= end.timestamp(), Reason.CERTIFICATE_EXPIRED, f"it was valid to {end:%FT%TZ}")

    def _find_distrust(self, authority: int, host: str) -> str:
        """Return why the certificate of a signer is not trusted; empty if it is. `host` is one that it names."""
        leaf, roots = _result(self._signer(authority)).certificate, self._trust or ()
        if not roots:
            return "no trusted roots were given"
        if any(root.der == leaf.der for root in roots):
            # A certificate that is trusted itself does not need a chain; its dates and names are checked.
            return ""
        self._chains += 1
        if self._chains > MAX_CERTIFICATES:
            return f"only {MAX_CERTIFICATES} certificates of a bundle are checked"
        store = verification.Store([root.certificate for root in roots])
        policy = verification.PolicyBuilder().store(store).time(datetime.fromtimestamp(self._now, UTC))
        intermediates = [one.certificate for one in self._authorities if one.der != leaf.der]
        try:
            # For one host: `_check_url` compares those of all URLs with the names.
            policy.build_server_verifier(_subject(host)).verify(leaf.certificate, intermediates)
        except (verification.VerificationError, ValueError) as error:
            return f"for {host[:80]}: {error}"
        return ""

    @cached_property
    def _authorities(self) -> list[AugmentedCertificate]:
        """Those that can be read, among which a chain is searched."""
        found = []
        for item in self._bundle.metadata.authorities[:MAX_CERTIFICATES]:
            with suppress(cbor.CborError):
                found.append(read_augmented(cbor.Items(item)))
        return found

    def _check_url(self, text: str, entry: SubsetEntry, signer: _Signer) -> None:
        url = parse_url(text)
        found = self._bundle.metadata.requests.get(url) if url else None
        shown = text[:200]
        if url is None or found is None:
            raise _InvalidError(Reason.NOT_IN_BUNDLE, f"{shown} is not in the bundle")
        is_named = signer.certificate.names.cover(certificate_host(url))
        _require(is_named, Reason.HOST_NOT_COVERED, f"the certificate does not name the host of {shown}")
        variants, locations = variants_of(found)
        has = "other variants than were signed" if variants else "no variants"
        _require(entry.variants == variants.encode("latin-1"), Reason.WRONG_VARIANTS, f"{shown} has {has}")
        fault = f"{shown} has {len(locations)} responses, {len(entry.integrities)} were signed"
        _require(len(locations) == len(entry.integrities), Reason.WRONG_NUMBER_OF_HASHES, fault)
        for location, integrity in zip(locations.values(), entry.integrities, strict=True):
            self._check_response(shown, location, integrity)

    def _check_response(self, url: str, location: Location, integrity: ResourceIntegrity) -> None:
        header_sha256, reason, fault = self._stored(location)
        _require(header_sha256, reason, f"{url}: {fault}")
        changed = f"the status or headers of {url} are not those that were signed"
        _require(header_sha256 == integrity.header_sha256, Reason.WRONG_HEADER_SHA256, changed)
        named = integrity.payload_integrity_header
        unknown = f"{named[:80]!r} for {url}, only {PAYLOAD_INTEGRITY!r} is known"
        _require(named == PAYLOAD_INTEGRITY, Reason.UNKNOWN_PAYLOAD_INTEGRITY, unknown)
        _require(not fault, reason, f"{url}: {fault}")

    def _read_response(self, location: Location) -> tuple[bytes, Reason, str]:
        """Return the digest of a response's header map, and what is wrong; either is empty where there is none."""
        try:
            head, header_map = load_signed(self._bundle, location)
        except ResponseError as error:
            return b"", Reason.RESPONSE_UNREADABLE, str(error)
        header_sha256 = hashlib.sha256(header_map).digest()
        proof = parse_mi_digest(head.stored_headers.get("digest", ""))
        if proof is None:
            return header_sha256, Reason.NO_DIGEST, f"a Digest of {MI_CODING} is missing"
        try:
            drive(payload_layout_parser(head.payload, proof), self._bundle.read)
        except StepError as error:
            return header_sha256, Reason.WRONG_DIGEST, error.reason
        return header_sha256, Reason.WRONG_DIGEST, ""


def _result(found: "_Signer | _InvalidError") -> "_Signer":
    if isinstance(found, _InvalidError):
        raise found.with_traceback(None)
    return found


def _p256_key(certificate: AugmentedCertificate) -> EllipticCurvePublicKey:
    try:
        key = certificate.certificate.public_key()
    except Exception as error:
        # For unknown kinds of keys the library raises errors without a common base.
        raise _InvalidError(Reason.NOT_P256, f"the certificate's key cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePublicKey) or not keys.is_p256(key):
        # "Reject all signatures by an RSA public key."
        raise _InvalidError(Reason.NOT_P256, "the certificate's key is not on P-256")
    return key


def _subset(vouched: VouchedSubset, signer: _Signer) -> SignedSubset:
    try:
        subset = read_subset(vouched.signed)
    except cbor.CborError as error:
        raise _InvalidError(Reason.NOT_A_SIGNED_SUBSET, f"{error.reason} at byte {error.offset} of it") from None
    _require(subset.auth_sha256 == signer.sha256, Reason.WRONG_AUTH_SHA256, "it is for another certificate")
    return subset


def _check_validity_url(subset: SignedSubset, signer: _Signer) -> None:
    url = parse_url(subset.validity_url)
    shown = subset.validity_url[:200]
    if url is None or not url.startswith("https://"):
        raise _InvalidError(Reason.VALIDITY_URL_NOT_HTTPS, f"{shown!r} is not an https URL")
    is_named = signer.certificate.names.cover(certificate_host(url))
    _require(is_named, Reason.VALIDITY_URL_ELSEWHERE, f"the certificate does not name the host of {shown}")


def _subject(host: str) -> DNSName | IPAddress:
    import ipaddress

    try:
        return IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return DNSName(host)


def _time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%FT%TZ}"
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"
