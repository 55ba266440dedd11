"""The static host map."""

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.overrides import Overrides


def where(overrides: Overrides, text: str) -> list[str]:
    authority = parse_authority(text)
    assert authority is not None
    return [str(endpoint) for endpoint in overrides.endpoints(authority)]


@pytest.mark.parametrize(
    ("entry", "endpoint"),
    [
        ("a.test=127.0.0.1", "127.0.0.1:443"),
        ("a.test=127.0.0.1:8443", "127.0.0.1:8443"),
        ("A.TEST.=127.0.0.1", "127.0.0.1:443"),
        ("a.test=::1", "[::1]:443"),
        ("a.test=[::1]", "[::1]:443"),
        ("a.test=[::1]:8443", "[::1]:8443"),
        ("a.test=::ffff:127.0.0.1", "[::ffff:7f00:1]:443"),
        ("a.test=2001:db8::8443", "[2001:db8::8443]:443"),
        (" a.test=127.0.0.1 ", "127.0.0.1:443"),
        ("*=127.0.0.1:8443", "127.0.0.1:8443"),
    ],
)
def test_an_entry_says_where_to_dial(entry: str, endpoint: str) -> None:
    assert where(Overrides([entry]), "a.test:443") == [endpoint]
    assert where(Overrides([entry]), "A.test.:443") == [endpoint]


def test_without_a_port_that_of_the_connect_stays() -> None:
    overrides = Overrides(["a.test=127.0.0.1"])
    assert where(overrides, "a.test:8443") == ["127.0.0.1:8443"]


def test_an_entry_is_for_one_host_alone() -> None:
    overrides = Overrides(["a.test=127.0.0.1"])
    assert where(overrides, "b.a.test:443") == []
    assert where(overrides, "test:443") == []


def test_the_star_is_for_every_name_without_an_entry_and_for_no_address() -> None:
    overrides = Overrides(["*=127.0.0.1", "a.test=127.0.0.2"])
    assert where(overrides, "a.test:443") == ["127.0.0.2:443"]
    assert where(overrides, "b.a.test:443") == ["127.0.0.1:443"]
    assert where(overrides, "localhost:443") == ["127.0.0.1:443"]
    for literal in ("93.184.216.34", "0x5db8d822", "[2606:4700::1]"):
        assert where(overrides, f"{literal}:443") == []


def test_an_address_may_have_an_entry_of_its_own() -> None:
    overrides = Overrides(["93.184.216.34=127.0.0.1:8443", "[2606:4700::1]=127.0.0.2"])
    assert where(overrides, "0x5db8d822:443") == ["127.0.0.1:8443"]
    assert where(overrides, "[2606:4700:0::1]:443") == ["127.0.0.2:443"]


def test_entries_of_one_host_add_up() -> None:
    overrides = Overrides(["a.test=::1", "a.test=127.0.0.1:81"])
    assert where(overrides, "a.test:443") == ["[::1]:443", "127.0.0.1:81"]


@pytest.mark.parametrize(
    "entry",
    [
        "", "=", "a.test", "a.test=", "=127.0.0.1", "a.test=localhost", "a.test=127.1", "a.test=0x7f.0.0.1",
        "a.test=256.0.0.1", "a.test=127.0.0.1:", "a.test=127.0.0.1:0", "a.test=127.0.0.1:65536", "a.test=127.0.0.1:x",
        "a.test=[127.0.0.1]", "a.test=[::1", "a.test=::1]", "a.test=[::1]:", "a.test=[::1]x", "a.test=fe80::1%lo",
        "a.test:443=127.0.0.1", "a.test:443:127.0.0.1", "*.test=127.0.0.1", "a b=127.0.0.1", "::1=127.0.0.1",
        "a.test=127.0.0.1=127.0.0.2", "a.test= 127.0.0.1", "a.test=\uff11.2.3.4", "a.test=127.0.0.1:\uff14",
    ],
)  # fmt: skip
def test_what_is_no_entry_is_told_in_one_sentence(entry: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Overrides([entry])
    assert str(raised.value).startswith(f"{entry!r} is not HOST=ADDRESS or HOST=ADDRESS:PORT; try ")
    assert "\n" not in str(raised.value)
