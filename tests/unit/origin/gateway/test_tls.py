"""Certificates, keys and authorities from files."""

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization as pem

from headgate.config.tree import TlsSection
from headgate.errors import ConfigurationError
from headgate.origin.gateway import TlsKeys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A certificate `a` and its key, the key of another, and one that is encrypted."""
    authority = trustme.CA()
    for name in ("a", "b"):
        leaf = authority.issue_cert("a.example")
        leaf.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        leaf.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    key = pem.load_pem_private_key((tmp_path / "a.key").read_bytes(), None)
    secret = pem.BestAvailableEncryption(b"secret")
    (tmp_path / "secret.key").write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, secret))
    return tmp_path


@pytest.mark.parametrize(
    ("cert", "key", "client_ca", "message"),
    [
        ("a.pem", "b.key", "", "b.key' cannot be used: key values mismatch; give PEM files that match"),
        ("a.pem", "secret.key", "", "with a key that is not encrypted"),
        ("a.pem", "none", "", "none' cannot be used: No such file or directory"),
        ("a.pem", "a.key", "none", "none' cannot be used: No such file or directory; give a PEM file with the"),
        ("a.pem", "a.key", "a.key", "a.key' cannot be used: no certificate or crl found"),
    ],
)
def test_unusable_files_are_named(folder: Path, cert: str, key: str, client_ca: str, message: str) -> None:
    section = TlsSection(cert=str(folder / cert), key=str(folder / key))
    with pytest.raises(ConfigurationError) as caught:
        TlsKeys([section], str(folder / client_ca) if client_ca else "")
    assert message in str(caught.value)


def test_changed_files_are_read_once_and_invalid_ones_leave_the_keys(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    keys = TlsKeys([TlsSection(cert=str(folder / "a.pem"), key=str(folder / "a.key"))])
    (folder / "other").touch()
    assert not keys.reload_changed()
    before = keys.context
    (folder / "b.pem").replace(folder / "a.pem")
    with pytest.raises(ConfigurationError, match="match"):
        keys.reload_changed()
    assert not keys.reload_changed()  # reported once
    assert keys.context is before
    (folder / "b.key").replace(folder / "a.key")
    assert keys.reload_changed()
    assert keys.context is not before


def test_sessions_outlive_other_certificates_and_no_change_of_the_authorities(folder: Path) -> None:
    names = ("a", "b")
    sections = [TlsSection(cert=str(folder / f"{n}.pem"), key=str(folder / f"{n}.key"), names=(n,)) for n in names]
    authorities = folder / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authorities)
    keys = TlsKeys(sections, str(authorities))
    before = keys.context
    (folder / "b.pem").touch()
    assert keys.reload_changed()
    assert keys.context is before
    trustme.CA().cert_pem.write_to_path(authorities)
    assert keys.reload_changed()
    assert keys.context is not before
