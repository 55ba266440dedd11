import importlib.util
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1

from headgate.errors import MissingExtra
from headgate.runtime.prefetch_proxy import certificate as module
from headgate.runtime.prefetch_proxy.certificate import self_signed


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("0.0.0.0", "0.0.0.0"),
        ("2001:db8::1", "2001:db8::1"),
        ("proxy.example.org", "proxy.example.org"),
        ("münchen.example", "xn--mnchen-3ya.example"),
        ("localhost", "localhost"),
    ],
)
def test_certificate_has_local_names_and_one_more_and_is_deleted(host, name):
    with self_signed(host) as (cert, key):
        assert Path(key).stat().st_mode & 0o777 == 0o600
        assert Path(key).parent.stat().st_mode & 0o777 == 0o700
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        made = x509.load_pem_x509_certificate(Path(cert).read_bytes())
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert isinstance(made.public_key().curve, SECP256R1)
    found = [str(one.value) for one in names]
    assert name in found
    assert {"localhost", "127.0.0.1", "::1"} <= set(found)
    assert len(found) == len(set(found))
    assert not Path(key).parent.exists()


def test_each_certificate_is_new():
    with self_signed("a") as (cert, _), self_signed("a") as (other, _):
        assert Path(cert).read_bytes() != Path(other).read_bytes()


def test_without_cryptography_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "cryptography" else importlib.util.find_spec)
    with pytest.raises(MissingExtra, match=r"\.\[sign\]"), self_signed("a"):
        pass
