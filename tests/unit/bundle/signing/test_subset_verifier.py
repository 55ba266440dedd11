"""headgate.bundle.signing.subset_verifier: every reason why a vouched subset is invalid."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from headgate.bundle.api import open_bundle
from headgate.bundle.format import cbor
from headgate.bundle.reader import Bundle
from headgate.bundle.signing import subset_verifier
from headgate.bundle.signing.keys import read_certificate_chain
from headgate.bundle.signing.report import Reason, Signature
from headgate.bundle.signing.subset_verifier import verify_subsets
from tests import signers
from tests.malformed import parts
from tests.unit.bundle.signing import forging
from tests.unit.bundle.signing.forging import LEAF, NEGOTIATED_URL, OTHER_URL, SUBSET_HASHES, URL, opened, vouch

HASHES = forging.hashes(b"one")


def found(bundle: Bundle, now: float = signers.NOW) -> Signature:
    (signature,) = verify_subsets(bundle, now=now, trust=None)
    return signature


def code(signature: Signature) -> str | None:
    assert signature.valid is (signature.reason is None)
    return signature.reason and signature.reason.partition(": ")[0]


def by(one: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments for another signing certificate."""
    return {
        "authorities": [{"cert": signers.der(one)}],
        "auth_sha256": hashlib.sha256(signers.der(one)).digest(),
        **options,
    }


def test_bundles_signed_by_hand_are_valid() -> None:
    signature = found(opened(vouch()))
    assert (signature.kind, signature.valid, signature.reason) == ("vouched-subset", True, None)
    assert set(signature.urls) == set(SUBSET_HASHES)
    assert any("trusted root" in sentence for sentence in signature.unchecked)


def test_subsets_may_leave_urls_out() -> None:
    signature = found(opened(vouch(subset_hashes={URL: [b"", *HASHES]})))
    assert (signature.valid, signature.urls) == (True, (URL,))


def test_urls_are_compared_in_normal_form() -> None:
    assert found(opened(vouch(subset_hashes={"HTTPS://example.com:443": [b"", *HASHES]}))).valid


FORGED: list[tuple[Reason, dict[str, Any]]] = [
    (Reason.AUTHORITY_OUT_OF_RANGE, {"authority": 1}),
    (Reason.AUTHORITY_OUT_OF_RANGE, {"authority": 2**64 - 1}),
    (Reason.BAD_SIGNATURE, {"key": signers.p256(2)}),
    (Reason.NOT_A_SIGNED_SUBSET, {"signed": b"garbage"}),
    (Reason.NOT_A_SIGNED_SUBSET, {"date": None}),
    (Reason.NOT_A_SIGNED_SUBSET, {"signed": cbor.encode(forging.members()) + b"\0"}),
    (Reason.WRONG_AUTH_SHA256, {"auth_sha256": bytes(32)}),
    (Reason.WRONG_AUTH_SHA256, {"auth_sha256": b""}),
    (Reason.EXPIRES_BEFORE_DATE, {"expires": forging.DATE - 1}),
    (Reason.LIFETIME_TOO_LONG, {"expires": forging.DATE + 604_801}),
    (Reason.LIFETIME_TOO_LONG, {"expires": 2**64 - 1}),
    (Reason.NOT_YET_VALID, {"date": int(signers.NOW) + 1}),
    (Reason.NOT_YET_VALID, {"date": 2**64 - 2, "expires": 2**64 - 1}),
    (Reason.EXPIRED, {"expires": int(signers.NOW) - 1}),
    (Reason.VALIDITY_URL_NOT_HTTPS, {"validity_url": "http://example.com/validity"}),
    (Reason.VALIDITY_URL_NOT_HTTPS, {"validity_url": "/validity"}),
    (Reason.VALIDITY_URL_NOT_HTTPS, {"validity_url": ""}),
    (Reason.VALIDITY_URL_ELSEWHERE, {"validity_url": "https://example.net/validity"}),
    (Reason.NOT_IN_BUNDLE, {"subset_hashes": {"https://example.com/none": [b"", *HASHES]}}),
    (Reason.NOT_IN_BUNDLE, {"subset_hashes": {"no URL": [b"", *HASHES]}}),
    (Reason.WRONG_VARIANTS, {"subset_hashes": {URL: [b"Accept;a", *HASHES]}}),
    (Reason.WRONG_VARIANTS, {"subset_hashes": {NEGOTIATED_URL: [b"", *forging.hashes(b"en", b"fr")]}}),
    (
        Reason.WRONG_VARIANTS,
        {"subset_hashes": {NEGOTIATED_URL: [b"Accept-Language;fr;en", *forging.hashes(b"en", b"fr")]}},
    ),
    (Reason.WRONG_NUMBER_OF_HASHES, {"subset_hashes": {URL: [b"", *HASHES, *HASHES]}}),
    (
        Reason.WRONG_NUMBER_OF_HASHES,
        {"subset_hashes": {NEGOTIATED_URL: [forging.VARIANTS.encode(), *forging.hashes(b"en")]}},
    ),
    (Reason.WRONG_HEADER_SHA256, {"subset_hashes": {URL: [b"", bytes(32), forging.INTEGRITY]}}),
    (
        Reason.WRONG_HEADER_SHA256,
        {"subset_hashes": {NEGOTIATED_URL: [forging.VARIANTS.encode(), *forging.hashes(b"fr", b"en")]}},
    ),
    (Reason.UNKNOWN_PAYLOAD_INTEGRITY, {"subset_hashes": {URL: [b"", HASHES[0], "digest/sha-256"]}}),
    (Reason.UNKNOWN_PAYLOAD_INTEGRITY, {"subset_hashes": {URL: [b"", HASHES[0], ""]}}),
]


def test_each_invalid_subset_has_its_reason() -> None:
    found_codes = [(reason, changes, code(found(opened(vouch(**changes))))) for reason, changes in FORGED]
    assert [row for row in found_codes if row[0] != row[2]] == []


@pytest.mark.parametrize(
    ("reason", "certificate", "changes"),
    [
        (Reason.HOST_NOT_COVERED, signers.certificate(["other.example"]), {"validity_url": "https://other.example/"}),
        (
            Reason.CERTIFICATE_NOT_YET_VALID,
            signers.certificate(valid=(datetime(2026, 1, 11, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))),
            {},
        ),
        (
            Reason.CERTIFICATE_EXPIRED,
            signers.certificate(valid=(datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 9, tzinfo=UTC))),
            {},
        ),
        (Reason.NOT_P256, signers.certificate(key=signers.p384()), {}),
        (Reason.NOT_P256, signers.certificate(key=rsa.generate_private_key(65537, 1024)), {}),
    ],
)
def test_each_invalid_certificate_has_its_reason(reason: Reason, certificate: Any, changes: dict[str, Any]) -> None:
    options = by(certificate)
    authorities = options.pop("authorities")
    assert code(found(opened(vouch(**options, **changes), authorities=authorities))) == reason


@pytest.mark.parametrize("cert", [b"", b"garbage", signers.der(LEAF)[:-1], signers.der(LEAF) + b"\0"])
def test_malformed_certificates_have_their_reason(cert: bytes) -> None:
    assert code(found(opened(vouch(), authorities=[{"cert": cert}]))) == Reason.CERTIFICATE_UNREADABLE


def test_signatures_with_another_context_are_invalid() -> None:
    vouched = vouch()
    for lead in (
        b"",
        b" " * 64 + b"Web Package 1\0",
        b" " * 64 + b"HTTP Exchange 1 b3\0",
        b" " * 63 + b"Web Package 1 b1\0",
    ):
        other = {**vouched, "sig": forging.signed_by(vouched["signed"], signers.p256(), lead)}
        assert code(found(opened(other))) == Reason.BAD_SIGNATURE


def test_missing_digest_is_reported() -> None:
    for digest in ("", "sha-256=AAAA", "mi-sha256-03=AAAA"):
        headers = forging.headers_of(b"one", digest=digest)
        hashes = {URL: [b"", forging.header_sha256(headers), forging.INTEGRITY]}
        stored = {URL: (forging.proven(b"one")[0], headers)}
        assert code(found(opened(vouch(subset_hashes=hashes), stored=stored))) == Reason.NO_DIGEST


def test_payloads_are_checked_with_their_digest() -> None:
    for payload in (forging.proven(b"two")[0], b"one", b"", forging.proven(b"one")[0] + b"\0"):
        stored = {URL: (payload, forging.headers_of(b"one"))}
        assert code(found(opened(vouch(), stored=stored))) == Reason.WRONG_DIGEST


def test_signatures_are_valid_from_date_to_expires_and_seven_days_at_most() -> None:
    assert found(opened(vouch(date=int(signers.NOW), expires=int(signers.NOW)))).valid
    assert found(opened(vouch(expires=forging.DATE + 604_800))).valid
    bundle = opened(vouch())
    assert [found(bundle, now).valid for now in (forging.DATE, forging.EXPIRES)] == [True, True]
    assert code(found(bundle, forging.DATE - 0.001)) == Reason.NOT_YET_VALID
    assert code(found(bundle, forging.EXPIRES + 0.001)) == Reason.EXPIRED


def test_certificates_are_valid_in_their_first_and_last_second() -> None:
    first, last = datetime(2026, 1, 10, tzinfo=UTC), datetime(2026, 1, 10, 0, 0, 30, tzinfo=UTC)
    options = by(signers.certificate(valid=(first, last)))
    bundle = opened(vouch(auth_sha256=options["auth_sha256"]), authorities=options["authorities"])
    assert [found(bundle, moment.timestamp()).valid for moment in (first, last)] == [True, True]
    assert code(found(bundle, first.timestamp() - 1)) == Reason.CERTIFICATE_NOT_YET_VALID
    assert code(found(bundle, last.timestamp() + 1)) == Reason.CERTIFICATE_EXPIRED


def test_keys_on_unknown_curves_are_not_on_p256() -> None:
    der = signers.der(LEAF)
    p256, unknown = (bytes.fromhex(f"06082a8648ce3d0301{last}") for last in ("07", "7f"))
    content = {"cert": der.replace(p256, unknown)}
    assert der.count(p256) == 1
    assert code(found(opened(vouch(), authorities=[content]))) == Reason.NOT_P256


def test_signatures_are_verified_independently() -> None:
    bundle = opened(vouch(), vouch(key=signers.p256(2)), vouch(subset_hashes={OTHER_URL: SUBSET_HASHES[OTHER_URL]}))
    results = verify_subsets(bundle, now=signers.NOW, trust=None)
    assert [signature.valid for signature in results] == [True, False, True]
    # An intermediary can take one out, and the others are none the worse.
    assert [signature.valid for signature in verify_subsets(opened(vouch()), now=signers.NOW, trust=None)] == [True]


def test_every_changed_byte_of_a_signed_response_is_detected() -> None:
    """Only the record size of a payload of one record is not proven: it changes nothing of the payload."""
    content = forging.written(vouch())
    bundle = open_bundle(content)
    first = bundle.metadata.sections[-1].offset
    sizes = {
        location.offset
        + content[location.offset : location.offset + location.length].index(bytes(6) + b"\x10\x00")
        + at
        for _, _, location in bundle.metadata.locations()
        for at in range(8)
        if bytes(6) + b"\x10\x00" in content[location.offset : location.offset + location.length]
    }
    survived = set()
    for position in range(first + 1, len(content) - 9):
        changed = bytearray(content)
        changed[position] ^= 0x01
        if found(open_bundle(bytes(changed))).valid:
            survived.add(position)
    assert survived <= sizes


ROOT_KEY = signers.p256(2)
ROOT = signers.root(ROOT_KEY)


def trusted(certificate: Any, *more: Any, trust: Sequence[Any] = (ROOT,), **changes: Any) -> Signature:
    options = by(certificate, **changes)
    authorities = [{"cert": signers.der(one)} for one in (certificate, *more)]
    options.pop("authorities")
    bundle = opened(vouch(**options), authorities=authorities)
    roots = read_certificate_chain(signers.certificate_pem(*trust))
    (signature,) = verify_subsets(bundle, now=signers.NOW, trust=roots)
    return signature


def test_overlapping_responses_are_not_verified() -> None:
    """A response may hold another that is signed too, so that a small file could keep a verifier busy for any time."""
    leaf = signers.certificate(["test.example.com"])
    options = by(leaf, validity_url=parts.PRIMARY, subset_hashes={f"{parts.PRIMARY}0": [b"", *HASHES]})
    signatures = cbor.encode([options.pop("authorities"), [vouch(**options)]])
    with open_bundle(parts.nested(50).having(signatures=signatures).written()) as bundle:
        assert code(found(bundle)) == Reason.RESPONSES_NESTED
    with open_bundle(parts.nested(1).having(signatures=signatures).written()) as bundle:
        assert code(found(bundle)) == Reason.WRONG_HEADER_SHA256


def test_certificates_that_lead_to_a_root_are_trusted() -> None:
    signature = trusted(signers.certificate(issuer=(ROOT, ROOT_KEY)))
    assert signature.valid, signature.reason
    assert not any("trusted root" in sentence for sentence in signature.unchecked)


def test_intermediate_certificates_are_taken_from_the_bundle() -> None:
    key = signers.p256(4)
    between = signers.root(key, issuer=(ROOT, ROOT_KEY))
    leaf = signers.certificate(issuer=(between, key))
    assert trusted(leaf, between).valid
    assert code(trusted(leaf)) == Reason.UNTRUSTED


def test_trusted_certificates_need_no_chain() -> None:
    assert trusted(LEAF, trust=[ROOT, LEAF]).valid
    assert code(trusted(LEAF, trust=[signers.certificate(common_name="another")])) == Reason.UNTRUSTED
    # It is believed about its own hosts and for its own time alone.
    elsewhere = signers.certificate(["other.example"])
    validity = "https://other.example/"
    assert code(trusted(elsewhere, trust=[elsewhere], validity_url=validity)) == Reason.HOST_NOT_COVERED
    past = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 9, tzinfo=UTC)
    old = signers.certificate(valid=past)
    assert code(trusted(old, trust=[old])) == Reason.CERTIFICATE_EXPIRED


def test_certificates_without_a_chain_to_a_root_are_untrusted() -> None:
    assert code(trusted(LEAF)) == Reason.UNTRUSTED
    other = signers.root(signers.p256(3))
    assert code(trusted(signers.certificate(issuer=(other, signers.p256(3))), other)) == Reason.UNTRUSTED


def test_trust_is_checked_last() -> None:
    assert code(trusted(LEAF, subset_hashes={URL: [b"", *forging.hashes(b"two")]})) == Reason.WRONG_HEADER_SHA256


def test_work_does_not_grow_with_signatures_times_what_they_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrusted input controls both numbers: each certificate, response and chain is read once."""
    work: Counter[str] = Counter()

    def counted(name: str) -> None:
        original = getattr(subset_verifier, name)

        def count(*arguments: Any) -> Any:
            work[name] += 1
            return original(*arguments)

        monkeypatch.setattr(subset_verifier, name, count)

    for name in ("read_augmented", "load_signed", "reject_overlapping_responses", "_subject"):
        counted(name)
    monkeypatch.setattr(subset_verifier, "MAX_SUBSETS", 30)
    wrong = vouch(subset_hashes={URL: [b"", bytes(32), forging.INTEGRITY]})
    bundle = opened(*[vouch()] * 20, *[wrong] * 20)
    roots = read_certificate_chain(signers.certificate_pem(ROOT))
    results = verify_subsets(bundle, now=signers.NOW, trust=roots)
    codes = Counter(code(signature) for signature in results)
    assert codes == {Reason.UNTRUSTED: 20, Reason.WRONG_HEADER_SHA256: 10, Reason.TOO_MANY_SIGNATURES: 1}
    # Once as the signer's, and once among the certificates that may lead to a root.
    assert work == {"read_augmented": 2, "load_signed": 4, "reject_overlapping_responses": 1, "_subject": 1}


def test_chains_are_searched_for_some_certificates_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_verifier, "MAX_CERTIFICATES", 2)
    leaves = [signers.certificate(issuer=(ROOT, ROOT_KEY), common_name=f"leaf {number}") for number in range(3)]
    ders = [signers.der(leaf) for leaf in leaves]
    vouched = [vouch(authority=n, auth_sha256=hashlib.sha256(der).digest()) for n, der in enumerate(ders)]
    bundle = opened(*vouched, *vouched, authorities=[{"cert": der} for der in ders])
    roots = read_certificate_chain(signers.certificate_pem(ROOT))
    results = verify_subsets(bundle, now=signers.NOW, trust=roots)
    assert [signature.valid for signature in results] == [True, True, False] * 2
    assert results[2].reason == "untrusted: only 2 certificates of a bundle are checked"
