"""The configuration that is written for HAProxy; `tests/e2e/test_sidecar_haproxy.py` runs it."""

import pytest

from headgate.errors import ConfigurationError
from headgate.origin.sidecar.haproxy_conf import configuration, quoted
from tests.unit.origin.sidecar.sites import site


def write(**values):
    return configuration(site(**values))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"socket": "/run/a b"}, "--socket: invalid path '/run/a b'"),
        ({"socket": "/run/a$HOME"}, "--socket: invalid path"),
        ({"socket": "/" + "a" * 100}, "--socket: "),
        ({"table": "a b"}, "--table: invalid table 'a b'"),
        ({"table": ""}, "--table: invalid table ''"),
        ({"identify": "header:x'y"}, '--identify: HAProxy cannot read a header named "x\'y"'),
        ({"identify": "header:a|b"}, "--identify: HAProxy cannot read a header named 'a|b'"),
    ],
)
def test_a_value_that_haproxy_would_read_as_something_else_is_refused(values, error):
    with pytest.raises(ConfigurationError) as raised:
        write(**values)
    assert str(raised.value).startswith(error)


def test_a_text_in_single_quotes_is_not_changed():
    assert quoted("a $HOME \\n %") == "'a $HOME \\n %'"
    assert quoted("it's\n") == "'it'\\''s'\"\\n\"''"


def test_no_line_of_the_configuration_begins_with_a_text_of_the_site():
    lines = write(domain="x' global \"a\\").splitlines()
    assert len(lines) == len(write().splitlines())


def test_the_prefix_of_ipv6_addresses_is_that_of_the_site():
    assert "%[src,ipmask(32,56)]/56" in write(ipv6_prefix=56)
    assert "/128" not in write(ipv6_prefix=128)


def test_the_table_has_room_for_the_keys_and_keeps_them_as_long_as_a_hold_can_be():
    assert "stick-table type string len 64 size 100k expire 3600s store gpt0" in write()
    text = write(identify="header:X-Api-Key", max_hold=7200.5, table="holds")
    assert "backend holds\n    stick-table type string len 765 size 100k expire 7201s store gpt0" in text
    assert "table_gpt0(holds)" in text
