import pytest

from headgate.bundle.signing.certificate_names import host_of, names_of
from tests import signers


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (["example.com"], "example.com", True),
        (["EXAMPLE.com"], "example.com", True),
        (["example.com"], "www.example.com", False),
        (["example.com"], "ample.com", False),
        (["example.com"], "", False),
        (["*.example.com"], "www.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "a.b.example.com", False),
        (["*.example.com"], ".example.com", True),
        (["*"], "example", False),
        (["a.example", "b.example"], "b.example", True),
        (["127.0.0.1"], "127.0.0.1", True),
        (["::1"], "::1", True),
        (["127.0.0.1"], "127.0.0.2", False),
    ],
)
def test_a_certificate_names_hosts(names: list[str], host: str, covered: bool) -> None:
    assert names_of(signers.certificate(names)).cover(host) is covered


def test_common_name_is_used_without_alternative_names() -> None:
    assert names_of(signers.certificate([], common_name="example.com")).cover("example.com")
    assert not names_of(signers.certificate(["other.example"], common_name="example.com")).cover("example.com")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/a?b", "example.com"),
        ("https://example.com:8443/", "example.com"),
        ("https://example.com./", "example.com"),
        ("https://[::1]/", "::1"),
        ("https://[0:0::1]/", "::1"),
        ("https://127.0.0.1/", "127.0.0.1"),
        ("urn:uuid:1", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host
