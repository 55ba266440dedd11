"""CURVE keys: what a file may contain, and which error explains each file that is refused."""

import re
from pathlib import Path

import pytest
import zmq
import zmq.auth

from headgate.errors import ConfigurationError
from headgate.link.curve import (
    AllowedKey,
    ClientKeys,
    KeyPair,
    keys_of_masters,
    new_key_pair,
    read_allowed_keys,
    read_client_keys,
    read_key_pair,
    read_public_key,
    read_server_keys,
)

# Constant, since they are part of the names of tests, which all processes of pytest-xdist must agree on.
PAIR = KeyPair(b"xh5GVKX>V:eon1?T7&sqzu@WSlVk![A:KZnfN:fa", b"=>QJYB/!=?!>Nhkz+TgwsG:@^G=@bs8QTp6g$K]S")
OTHER = KeyPair(b"<aYX%r}ND4kc3JW7L/pM7$g5O+jt2/i{0zWR}1QX", b"Xu-3kX#nfPDnDS-+AmNVr%${qXhh>!KtBBY^?Kj6")
KEY, OTHER_KEY = PAIR.public.decode(), OTHER.public.decode()
TOO_LARGE = b"#" * 40
"""Five characters stand for 32 bits; five of the last one exceed them."""


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file and returns its name."""

    def write(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_new_keys_begin_neither_like_a_comment_nor_like_an_option(monkeypatch):
    drawn = [(b"#public", b"secret"), (b"public", b"-secret"), (b"public", b"secret")]
    monkeypatch.setattr(zmq, "curve_keypair", lambda: drawn.pop(0))
    assert new_key_pair() == KeyPair(b"public", b"secret")


def test_key_files_are_certificates_that_pyzmq_reads(file):
    assert zmq.auth.load_certificate(file(PAIR.secret_file())) == (PAIR.public, PAIR.secret)
    assert zmq.auth.load_certificate(file(PAIR.public_file())) == (PAIR.public, None)


def test_certificates_of_pyzmq_are_read(tmp_path):
    public, secret = zmq.auth.create_certificates(tmp_path, "own", {"name": "gate", "city": "a = b"})
    pair = read_key_pair(secret)
    assert zmq.curve_public(pair.secret) == pair.public == read_public_key(public)
    assert read_allowed_keys(public) == read_allowed_keys(secret) == {pair.public: AllowedKey()}


def test_a_key_is_read_from_a_certificate_or_a_bare_line(file):
    for content in (PAIR.secret_file(), PAIR.secret, PAIR.secret + b"\r\n"):
        assert read_key_pair(file(content)) == PAIR
    for content in (PAIR.public_file(), PAIR.secret_file(), PAIR.public, b" " + PAIR.public + b"\n"):
        assert read_public_key(file(content)) == PAIR.public


def test_public_key_may_be_given_as_itself_unless_a_file_has_that_name(tmp_path, monkeypatch, file):
    assert read_public_key(KEY) == PAIR.public
    monkeypatch.chdir(tmp_path)
    name = "k" * 40
    file(OTHER.public_file(), name)
    assert read_public_key(name) == OTHER.public


@pytest.mark.parametrize(
    ("content", "first", "second"),
    [
        (f"{KEY}\n{OTHER_KEY}\n{KEY}", (), ()),
        (f"# gates\n\n  {KEY} first\n{OTHER_KEY}\tsecond # a comment\r\n", ("first",), ("second",)),
        (f"{KEY} #first\n{OTHER_KEY} b web api", (), ("b", frozenset(["web", "api"]))),
        (PAIR.public_file() + OTHER.public_file(), (), ()),
        (PAIR.public_file() + OTHER.public, (), ()),
        (OTHER.public + b"\n" + PAIR.secret_file(), (), ()),
    ],
    ids=["bare", "names", "domains", "certificates", "certificate and key", "key and certificate"],
)
def test_list_of_keys(file, content, first, second):
    assert read_allowed_keys(file(content)) == {PAIR.public: AllowedKey(*first), OTHER.public: AllowedKey(*second)}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no key in it; expected one public key per line"),
        ("# nothing\n\n", "no key in it"),
        ("curve\n", "no key in it"),
        (f"{KEY}\n{OTHER_KEY[:-1]}\n", " line 2: not a key; expected 40 characters of Z85"),
        (f"{KEY}\n{OTHER_KEY}x\n", " line 2: not a key"),
        (f"name {KEY}\n", " line 1: not a key"),
        ('curve\n    public-key = "short"\n', " line 2: not a key"),
        (b"\xff\xfe\0", " line 1: not a key"),
        (KEY.encode() + b"\n" + TOO_LARGE[1:] + b"\n", ""),  # a comment
        (b"%" + TOO_LARGE[1:], " line 1: not a key"),
        (f"{KEY} a\n{KEY} a web\n", " line 2: this key is listed twice, with different names or domains"),
        ("x" * 1_048_577, "more than 1048576 bytes"),
    ],
)
def test_malformed_list_is_an_error(file, content, reason):
    name = file(content)
    if not reason:
        assert read_allowed_keys(name) == {PAIR.public: AllowedKey()}
        return
    with pytest.raises(ConfigurationError, match=re.escape(name) + ".*" + re.escape(reason)):
        read_allowed_keys(name)


def test_unreadable_file_is_an_error_that_does_not_ask_for_new_keys(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigurationError, match=r"^kept: Permission denied; make it readable for this user$"):
        read_key_pair("kept")


@pytest.mark.parametrize("read", [read_allowed_keys, read_key_pair, read_public_key])
def test_missing_file_is_an_error_that_names_the_command(read, tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent: No such file or directory; create keys with: headgate keys"):
        read(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (PAIR.public_file(), "contains a public key only; name the file with the secret key"),
        ("", "not a key"),
        ("rubbish\nrubbish", "not a key"),
        (PAIR.secret_file().replace(PAIR.public, OTHER.public), "the public key does not belong to the secret key"),
    ],
)
def test_invalid_secret_key_is_an_error(file, content, reason):
    with pytest.raises(ConfigurationError, match=reason):
        read_key_pair(file(content))


def test_error_does_not_show_a_secret(file):
    wrong = PAIR.secret[:-1]
    with pytest.raises(ConfigurationError) as error:
        read_key_pair(file(wrong))
    assert wrong.decode() not in str(error.value)


def test_keys_of_a_server_need_a_list(file):
    key, allow = file(PAIR.secret_file(), "key"), file(OTHER.public, "allow")
    assert read_server_keys("", "", "master") is None
    assert read_server_keys(key, allow, "master") == (PAIR, {OTHER.public: AllowedKey()})
    with pytest.raises(ConfigurationError, match=r"master\.curve_key needs master\.curve_allow \(--curve-allow\)"):
        read_server_keys(key, "", "master")
    with pytest.raises(ConfigurationError, match=r"router\.curve_allow needs router\.curve_key \(--curve-key\)"):
        read_server_keys("", allow, "router")


def test_keys_of_a_client_need_the_key_of_the_server(file):
    key = file(PAIR.secret_file(), "key")
    assert read_client_keys("", ("",), "gate") is None
    assert read_client_keys(key, (OTHER_KEY, KEY), "gate") == ((PAIR, OTHER.public), (PAIR, PAIR.public))
    with pytest.raises(ConfigurationError, match=r"gate\.curve_key needs gate\.curve_server \(--curve-server\)"):
        read_client_keys(key, ("",), "gate")
    with pytest.raises(ConfigurationError, match=r"gate\.curve_server needs gate\.curve_key \(--curve-key\)"):
        read_client_keys("", (OTHER_KEY,), "gate")


def test_one_key_is_for_all_masters_and_several_are_in_their_order():
    one, other = ClientKeys(PAIR, OTHER.public), ClientKeys(PAIR, PAIR.public)
    assert keys_of_masters(None, 2) == [None, None]
    assert keys_of_masters(one, 2) == keys_of_masters([one], 2) == [one, one]
    assert keys_of_masters((one, other), 2) == (one, other)
    with pytest.raises(ConfigurationError, match=r"curve_server \(--curve-server\) lists 2 keys for 3 masters"):
        keys_of_masters([one, other], 3)
    with pytest.raises(ConfigurationError, match="2 keys for 1 master;"):
        keys_of_masters([one, other], 1)
