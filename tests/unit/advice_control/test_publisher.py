import json
import math

import msgspec
import pytest

from headgate.advice_control import Entry, document
from headgate.errors import ConfigurationError
from tests.quotes import quotes


def test_fraction_out_of_range_is_refused():
    for fraction in (-0.1, 1.1, math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigurationError, match=r"advice\.fraction of 'prefetch-proxy'"):
            Entry("prefetch-proxy", fraction=fraction)


def test_empty_name_is_refused():
    for user_agent in ("", "  "):
        with pytest.raises(ConfigurationError, match="user_agent is empty"):
            Entry(user_agent)


def test_entry_is_read_from_a_configuration_and_unknown_keys_are_refused():
    assert msgspec.convert({"user_agent": "*", "fraction": 0}, Entry) == Entry("*", fraction=0.0)
    with pytest.raises(msgspec.ValidationError, match="disalow"):
        msgspec.convert({"user_agent": "*", "disalow": True}, Entry)


def test_document_is_a_list_of_maps_without_default_values():
    entries = [Entry("prefetch-proxy", fraction=0.25), Entry("BadBot", disallow=True), Entry("*")]
    assert json.loads(document(entries)) == [
        {"user_agent": "prefetch-proxy", "fraction": 0.25},
        {"user_agent": "BadBot", "disallow": True},
        {"user_agent": "*"},
    ]
    assert document([]) == b"[]"
    assert document([Entry("*", fraction=-0.0)]) == b'[{"user_agent":"*","fraction":0.0}]'
    assert document([Entry("Prüfer")]) == '[{"user_agent":"Prüfer"}]'.encode()


def test_second_entry_for_one_agent_is_refused():
    with pytest.raises(ConfigurationError, match="appears twice"):
        document([Entry("*"), Entry("*", disallow=True)])


@quotes(
    "traffic-advice 8.1",
    "If interpreted as JavaScript, the JSON data would either be syntactically invalid or an empty block.",
)
def test_a_published_document_has_no_effect_as_a_script():
    names = ["</script>", "${alert(1)}", "*/alert(1)/*", "a\u2028b", '"+alert(1)+"', "__proto__"]
    written = document([*(Entry(name, disallow=True) for name in names), Entry("*", fraction=0.5)])
    # A literal: a list of maps of texts, booleans and numbers. JSON is part of the language of scripts.
    assert written.startswith(b"[{")
    items = json.loads(written)
    assert [item["user_agent"] for item in items] == [*names, "*"]
    assert {type(value) for item in items for value in item.values()} == {str, bool, float}
    assert {name for item in items for name in item} == {"user_agent", "disallow", "fraction"}
