import json

import pytest

from headgate.advice import MEDIA_TYPE, PATH, Entry, document
from headgate.errors import ConfigurationError


def test_the_document_is_a_list_of_maps_that_leave_out_the_defaults() -> None:
    entries = [Entry("prefetch-proxy", fraction=0.25), Entry("BadBot", disallow=True), Entry("*")]
    assert json.loads(document(entries)) == [
        {"user_agent": "prefetch-proxy", "fraction": 0.25},
        {"user_agent": "BadBot", "disallow": True},
        {"user_agent": "*"},
    ]


def test_no_entries_make_an_empty_list_which_agents_read_as_no_advice() -> None:
    assert document([]) == b"[]"


def test_a_fraction_of_zero_is_written_without_its_sign() -> None:
    assert document([Entry("*", fraction=-0.0)]) == b'[{"user_agent":"*","fraction":0.0}]'


def test_names_are_written_in_utf_8() -> None:
    assert document([Entry("Prüfer")]) == '[{"user_agent":"Prüfer"}]'.encode()


def test_an_agent_named_twice_is_refused_since_the_second_entry_would_never_be_read() -> None:
    with pytest.raises(ConfigurationError, match="appears twice"):
        document([Entry("*"), Entry("*", disallow=True)])


def test_the_resource_is_where_and_what_the_document_says() -> None:
    """ "well-known URI suffix traffic-advice", "the application/trafficadvice+json MIME type" (section 10)."""
    assert (PATH, MEDIA_TYPE) == ("/.well-known/traffic-advice", "application/trafficadvice+json")
