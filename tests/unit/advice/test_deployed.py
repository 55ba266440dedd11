"""The largest deployed prefetch proxy, as its document's editor describes it."""

import pytest

from headgate.advice import MEDIA_TYPE
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.lint import DEPLOYED, read_as_deployed
from headgate.advice.parser import AdviceEntry

TYPED = [("Content-Type", MEDIA_TYPE)]


def read(document: bytes, *, status: int = 200, is_secure: bool = True) -> AdviceEntry | None:
    return read_as_deployed(AdviceResponse(status, TYPED, document), is_secure=is_secure)


def test_it_is_a_prefetch_proxy_with_a_name() -> None:
    assert DEPLOYED == ("Chrome Privacy Preserving Prefetch Proxy", "prefetch-proxy", "*")


@pytest.mark.parametrize(
    ("members", "entry"),
    [
        (b'"fraction":0.5', AdviceEntry(fraction=0.5)),
        (b'"fraction":0.5,"disallow":true', AdviceEntry(fraction=0.5)),
        (b'"fraction":0,"disallow":false', AdviceEntry(fraction=0.0)),
        (b'"fraction":1.5', AdviceEntry(fraction=1.0)),
        (b'"fraction":-1', AdviceEntry(fraction=0.0)),
        (b'"fraction":"0.5","disallow":true', AdviceEntry(disallowed=True)),
        (b'"disallow":true', AdviceEntry(disallowed=True)),
        (b'"disallow":false', AdviceEntry(fraction=1.0)),
        (b'"disallow":"true"', AdviceEntry(fraction=0.0)),
        (b'"google_prefetch_proxy_eap":{"fraction":0.25}', AdviceEntry(fraction=0.25)),
        (b'"google_prefetch_proxy_eap":{"fraction":0.25},"fraction":0.5', AdviceEntry(fraction=0.5)),
        (b'"google_prefetch_proxy_eap":{"fraction":0.25},"disallow":true', AdviceEntry(disallowed=True)),
        (b'"google_prefetch_proxy_eap":{}', AdviceEntry(fraction=0.0)),
        (b'"google_prefetch_proxy_eap":{"fraction":true}', AdviceEntry(fraction=0.0)),
        (b'"google_prefetch_proxy_eap":0.5', AdviceEntry(fraction=0.0)),
        (b'"x":1', AdviceEntry(fraction=0.0)),
    ],
)
def test_a_fraction_overrides_disallow_and_without_either_it_looks_for_the_early_access(
    members: bytes, entry: AdviceEntry
) -> None:
    assert read(b'[{"user_agent":"*",' + members + b"}]") == entry


@pytest.mark.parametrize(
    ("document", "fraction"),
    [
        (b'[{"user_agent":"*","fraction":0.1},{"user_agent":"prefetch-proxy","fraction":0.2}]', 0.1),
        (b'[{"user_agent":"prefetch-proxy","fraction":0.2},{"user_agent":"*","fraction":0.1}]', 0.2),
        (b'[{"user_agent":"other","fraction":0.3},{"user_agent":"*","fraction":0.1}]', 0.1),
        (b'[null,[],{"user_agent":1},{"user_agent":"*","fraction":0.1}]', 0.1),
        (b'\xef\xbb\xbf[{"user_agent":"*","fraction":0.1}]', 0.1),
    ],
)
def test_it_takes_the_first_entry_that_names_it(document: bytes, fraction: float) -> None:
    assert read(document) == AdviceEntry(fraction=fraction)


@pytest.mark.parametrize(
    "document", [b"", b"{}", b"[]", b"[", b'[{"user_agent":"other"}]', b'[{"user_agent":"*","x":"\xff"}]']
)
def test_what_it_cannot_read_is_no_advice(document: bytes) -> None:
    assert read(document) is None


def test_it_wants_https_and_status_200_and_the_media_type() -> None:
    document = b'[{"user_agent":"*","fraction":0.1}]'
    assert read(document, is_secure=False) is None
    assert read(document, status=203) is None
    assert read_as_deployed(AdviceResponse(200, [("Content-Type", "application/json")], document)) is None
    assert read_as_deployed(AdviceResponse(200, TYPED, None)) is None
    assert read_as_deployed(NETWORK_ERROR) is None
