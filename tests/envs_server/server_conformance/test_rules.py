"""Each rule of the kit says where to read on, and what it names is there."""

import re
from pathlib import Path

from envs_server.conformance.rules import Rule
from envs_server.server_conformance import rules

_PROTO = Path(__file__).parents[3] / "proto" / "seedrl" / "wire" / "seedrl.proto"
_PLACE = re.compile(r"see ([A-Z][\w.]+(?: [A-Z]+)*)")


def test_every_rule_says_where_to_read_on() -> None:
    text = _PROTO.read_text()
    all_rules = [rule for rule in vars(rules).values() if isinstance(rule, Rule)]
    assert [rule.name for rule in all_rules if "see " not in rule.remedy] == []
    places = {place for rule in all_rules for place in _PLACE.findall(rule.remedy)}
    assert {"BREACHES", "STEPS AND ACTIONS", "Group.seeds", "Sent"} <= places
    for place in places:
        message, _, field = place.partition(".")
        assert f"// {place}. " in text or f"message {message} {{" in text, place
        assert re.search(rf"\b{field} = \d", text) if field else True, place
