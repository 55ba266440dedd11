import re

import msgspec

from headgate.config import Configuration, schema


def test_every_key_of_every_table_is_described():
    for table in schema()["$defs"].values():
        assert table["additionalProperties"] is False
        for name, key in table["properties"].items():
            assert key.get("description"), name


def test_a_rule_is_a_text_with_a_pattern():
    rule = schema()["$defs"]["DomainSection"]["properties"]["rules"]["items"]
    for text in ("10/s burst 20", "600 per 10min", "1000/h burst 50", "1 per 500ms burst 3"):
        assert re.search(rule["pattern"], text)
    assert not re.search(rule["pattern"], "ten per second")


def test_it_is_json_and_tells_the_defaults():
    written = msgspec.json.decode(msgspec.json.encode(schema()))
    gate = written["$defs"]["Gate"]["properties"]
    assert gate["listen"]["default"] == Configuration().gate.listen
    assert set(gate) == set(Configuration().gate.__struct_fields__)
