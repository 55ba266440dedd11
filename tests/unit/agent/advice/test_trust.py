"""Whom an agent trusts: what this machine has, wherever it keeps it, and nothing that the environment names."""

import ssl
import subprocess
from contextlib import suppress

import pytest
import trustme

from headgate.agent.advice import trust
from headgate.agent.advice.trust import usual_authorities

AUTHORITY = trustme.CA()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine that keeps no authorities anywhere yet; gives its file and its folder for them."""
    file, folder = tmp_path / "cert.pem", tmp_path / "certs"
    paths = ssl.DefaultVerifyPaths(None, None, "SSL_CERT_FILE", str(file), "SSL_CERT_DIR", str(folder))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setattr(trust, "_FILES", ())
    usual_authorities.cache_clear()
    yield file, folder
    usual_authorities.cache_clear()


def chosen_with(tls: ssl.SSLContext) -> str | None:
    """Shake hands in memory with whom the authority vouches for, and who speaks HTTP/2 too; give what is to be spoken.

    Raises `ssl.SSLCertVerificationError`.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.set_alpn_protocols(["h2", "http/1.1"])
    AUTHORITY.issue_cert("a.example").configure_cert(serving)
    to_agent, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    agent = tls.wrap_bio(to_agent, to_server, server_hostname="a.example")
    server = serving.wrap_bio(to_server, to_agent, server_side=True)
    for side in (agent, server, agent, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return agent.selected_alpn_protocol()


def is_trusted(tls: ssl.SSLContext) -> bool:
    try:
        chosen_with(tls)
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_this_machine_s_file_is_trusted(machine):
    AUTHORITY.cert_pem.write_to_path(machine[0])
    assert is_trusted(usual_authorities())


@pytest.mark.needs("openssl")
def test_this_machine_s_folder_is_trusted_with_its_file_or_without(machine):
    file, folder = machine
    folder.mkdir()
    AUTHORITY.cert_pem.write_to_path(folder / "authority.pem")
    subprocess.run(["openssl", "rehash", folder], check=True)
    assert is_trusted(usual_authorities())
    trustme.CA().cert_pem.write_to_path(file)
    usual_authorities.cache_clear()
    assert is_trusted(usual_authorities())


@pytest.mark.parametrize("has_folder", [False, True])
def test_where_neither_is_others_are_looked_for(machine, monkeypatch, tmp_path, has_folder):
    if has_folder:
        machine[1].mkdir()
        (machine[1] / "README").write_text("no certificate")
    AUTHORITY.cert_pem.write_to_path(tmp_path / "bundle.pem")
    monkeypatch.setattr(trust, "_FILES", (str(tmp_path / "none.pem"), str(tmp_path / "bundle.pem")))
    assert is_trusted(usual_authorities())


def test_others_are_not_looked_for_where_there_is_one(machine, monkeypatch, tmp_path):
    trustme.CA().cert_pem.write_to_path(machine[0])
    AUTHORITY.cert_pem.write_to_path(tmp_path / "bundle.pem")
    monkeypatch.setattr(trust, "_FILES", (str(tmp_path / "bundle.pem"),))
    assert not is_trusted(usual_authorities())


def test_where_there_is_none_nobody_is_trusted(machine):
    assert not is_trusted(usual_authorities())


def test_the_environment_says_nothing_about_whom_to_trust(machine, monkeypatch, tmp_path):
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert not is_trusted(usual_authorities())
    assert is_trusted(ssl.create_default_context()), "where it would"


def test_http_1_1_is_all_that_is_asked_for(machine):
    AUTHORITY.cert_pem.write_to_path(machine[0])
    assert chosen_with(usual_authorities()) == "http/1.1"


def test_it_is_read_once(machine):
    assert usual_authorities() is usual_authorities()


def test_names_are_checked(machine):
    assert usual_authorities().check_hostname
    assert usual_authorities().verify_mode is ssl.CERT_REQUIRED
