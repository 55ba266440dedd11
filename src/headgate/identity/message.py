"""The signature base of RFC 9421, section 2.5, and the components that a request has for it."""

from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote

from headgate.http.fields import Pairs
from headgate.identity.fields import MAX_FIELD_SIZE, Item, parse_dictionary, serialize


class SignedMessage(NamedTuple):
    """The parts of a request that a signature may cover.

    The scheme is https: agents sign no other requests, and an origin behind a proxy that ends TLS does not see it.
    """

    method: str
    authority: str
    """The value of Host or `:authority`."""
    target: str
    """The path with the query, percent-encoded as sent."""
    fields: Pairs
    """The fields, with names in lower case."""

    def lines(self, name: str) -> list[str]:
        """Return the values of the lines of a field."""
        return [value.strip("\t ") for given, value in self.fields if given == name]


class NoComponent(ValueError):
    """A signature covers what the request does not have, or what this profile does not know."""


def normal_authority(authority: str) -> str:
    """Return an authority in lower case and without the default port of https (2.2.3)."""
    return authority.strip().lower().removesuffix(":443")


def signature_base(signed: Item, value_of: Callable[[Item], str]) -> bytes:
    """Return what is signed: the components of an inner list, with their values, and the list with its parameters.

    Raises `NoComponent`, as does `value_of`.
    """
    lines = [f"{serialize(component)}: {value_of(component)}" for component in signed[0]]
    if len(set(lines)) < len(lines):
        raise NoComponent("a component is covered twice")
    return "\n".join([*lines, f'"@signature-params": {serialize(signed)}']).encode()


def component_value(message: SignedMessage, component: Item) -> str:
    """Return the value of a component of a request; raises `NoComponent`."""
    name, parameters = component
    value: str | None = None
    if type(name) is not str or name != name.lower():
        pass
    elif name in _DERIVED and not parameters:
        value = _DERIVED[name](message)
    elif name == "@query-param" and set(parameters) == {"name"}:
        value = _query_parameter(message, parameters["name"])
    elif not name.startswith("@") and (lines := message.lines(name)):
        member = parse_dictionary(lines).get(parameters["key"]) if set(parameters) == {"key"} else None
        value = ", ".join(lines) if not parameters else None if member is None else serialize(member)
    if value is None or len(value) > MAX_FIELD_SIZE or not (value.isascii() and value.isprintable()):
        raise NoComponent(f"no component {serialize(component)}")
    return value


def _query_parameter(message: SignedMessage, name: object) -> str | None:
    """Return the only query parameter of a name, encoded as in 2.2.8."""
    query = message.target.partition("?")[2]
    values = [_encoded(value) for key, value in parse_qsl(query, keep_blank_values=True) if _encoded(key) == name]
    return values[0] if len(values) == 1 else None


def _encoded(text: str) -> str:
    return quote(text, safe="*").replace("~", "%7E")


_DERIVED: Final[dict[str, Callable[[SignedMessage], str]]] = {
    "@authority": lambda message: normal_authority(message.authority),
    "@method": lambda message: message.method,
    "@path": lambda message: message.target.partition("?")[0] or "/",
    "@query": lambda message: "?" + message.target.partition("?")[2],
    "@request-target": lambda message: message.target,
    "@scheme": lambda _message: "https",
    "@target-uri": lambda message: f"https://{normal_authority(message.authority)}{message.target}",
}
