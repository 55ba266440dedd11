"""`headgate serve`: a file and the options that override it."""

import pytest

from headgate.cli.serve import ServeOptions
from headgate.errors import ConfigurationError

API = '[[domain]]\nname = "api"\npath_prefix = "/api/"\nrules = ["1/s"]\n'
DEFAULT = '[[domain]]\nname = "default"\nalgorithm = "gcra"\nexempt = ["192.0.2.1"]\nrules = ["2/s"]\n'


def domains(tmp_path, text, *rules):
    """Give the names of the domains, in order, with their rules."""
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    tree, _ = ServeOptions(str(file), rules=rules).read()
    return {section.name: section for section in tree.domain}


def test_rule_adds_domain_default_after_the_domains_of_the_file(tmp_path):
    read = domains(tmp_path, API, "9/s", "100/h")
    assert {name: section.rules for name, section in read.items()} == {"api": ("1/s",), "default": ("9/s", "100/h")}
    assert list(read) == ["api", "default"]
    assert read["default"].takes_all


def test_rule_replaces_only_the_rules_of_the_domain_default(tmp_path):
    read = domains(tmp_path, DEFAULT + API, "9/s")
    assert list(read) == ["default", "api"]
    assert (read["default"].rules, read["default"].algorithm) == (("9/s",), "gcra")
    assert read["default"].exempt == ("192.0.2.1",)
    assert read["api"].rules == ("1/s",)


def test_rule_that_no_request_would_reach_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="'all' matches all requests; leave --rule out, or rename that domain"):
        domains(tmp_path, API + '[[domain]]\nname = "all"\nrules = ["1/s"]\n', "9/s")


def test_rule_without_a_file_applies_to_all_requests():
    tree, _ = ServeOptions(rules=("9/s",)).read()
    assert [(section.name, section.rules, section.takes_all) for section in tree.domain] == [
        ("default", ("9/s",), True)
    ]


def test_flags_and_environment_replace_origins_and_listeners_of_the_file(tmp_path, monkeypatch):
    file = tmp_path / "headgate.toml"
    file.write_text('[[origin]]\nurl = "http://a"\nweight = 2\n[[listener]]\naddress = ":1"\nredirect = true\n')
    monkeypatch.setenv("HEADGATE_GATE_LISTEN", ":2")
    tree, _ = ServeOptions(str(file), {"gate.origin": ("http://b", "https://c")}).read()
    assert [(one.url, one.weight) for one in tree.origins] == [("http://b", 1), ("https://c", 1)]
    assert [(one.address, one.redirect) for one in tree.listeners] == [(":2", False)]


def test_the_demonstration_keeps_its_queue():
    tree, _ = ServeOptions(demo=True, rules=("9/s",)).read()
    assert [(section.name, section.rules) for section in tree.domain] == [
        ("queue", ("2/s burst 2",)),
        ("default", ("9/s",)),
    ]


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        ({"limit.concurrency.queue": 5}, "warning: --queue has no effect without a concurrency limit"),
        ({"limit.concurrency.queue": 5, "limit.concurrency.max": 8}, ""),
        ({"advice.capacity": "5/s"}, "warning: --capacity has no effect in advice mode 'static'"),
        ({"advice.capacity": "5/s", "advice.mode": "monitor"}, ""),
    ],
)
def test_an_option_that_nothing_uses_is_a_warning(capsys, flags, warning):
    ServeOptions(flags=flags).read()
    said = capsys.readouterr().err
    assert warning in said
    assert bool(warning) == bool(said)
