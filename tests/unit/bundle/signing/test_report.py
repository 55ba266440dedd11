"""headgate.bundle.signing.report."""

import pytest
from msgspec.structs import replace

from headgate.bundle import open_bundle
from headgate.bundle.signing import Reason, Signature, Verification, verify_bundle
from headgate.errors import ConfigurationError
from tests import signers
from tests.malformed import parts
from tests.unit.bundle.signing.forging import NEGOTIATED_URL, OTHER_URL, SUBSET_HASHES, URL, opened, vouch

GOOD = Signature("vouched-subset", valid=True)
UNTRUSTED = Signature("vouched-subset", valid=False, reason=f"{Reason.UNTRUSTED}: no roots were given")
EXPIRED = Signature("vouched-subset", valid=False, reason=f"{Reason.EXPIRED}: a day ago")


@pytest.mark.parametrize(
    ("signatures", "result"),
    [
        ((), "not-signed"),
        ((GOOD,), "partly-signed"),
        ((UNTRUSTED,), "untrusted"),
        ((GOOD, UNTRUSTED), "untrusted"),
        ((EXPIRED,), "not-valid"),
        ((UNTRUSTED, EXPIRED), "not-valid"),
        ((EXPIRED, UNTRUSTED), "not-valid"),
    ],
)
def test_result_is_untrusted_if_trust_alone_is_missing(signatures, result):
    assert Verification(False, None, signatures).result == result
    assert Verification(True, None, signatures).result == "valid"


@pytest.mark.parametrize(
    ("changed", "urls", "unsigned"),
    [
        ({}, SUBSET_HASHES, ()),
        ({}, {OTHER_URL, NEGOTIATED_URL}, (URL,)),
        ({"primary_url": f"{URL}#part"}, SUBSET_HASHES, ()),
        ({"primary_url": f"{URL}pay"}, SUBSET_HASHES, (f"{URL}pay",)),
        ({"manifest_url": f"{URL}pay"}, SUBSET_HASHES, (f"{URL}pay",)),
    ],
)
def test_signatures_cover_responses_primary_and_manifest_url(changed, urls, unsigned):
    bundle = opened(vouch(subset_hashes={url: SUBSET_HASHES[url] for url in urls}))
    bundle.metadata = replace(bundle.metadata, **changed)
    found = verify_bundle(bundle, now=signers.NOW, any_certificate=True)
    assert [one.valid for one in found.signatures] == [True]
    assert (found.valid, found.unsigned_urls.first) == (not unsigned, unsigned)


def test_trust_and_any_certificate_exclude_each_other():
    with (
        open_bundle(parts.b2().written()) as bundle,
        pytest.raises(ConfigurationError, match="trust and any_certificate exclude each other"),
    ):
        verify_bundle(bundle, now=0.0, trust=b"", any_certificate=True)
