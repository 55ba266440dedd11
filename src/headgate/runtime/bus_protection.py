"""Who can reach the bus of a master or a router, and who can read its keys: what is refused, and what is a warning."""

from collections.abc import Iterator

from headgate.config.section import Address
from headgate.config.toml_reader import key_file_warnings
from headgate.config.tree import Bus, Router
from headgate.errors import LinkError, fail_if, naming
from headgate.link.sockets import is_exposed, unprotected_error


def bus_address(section: Bus | Router) -> str:
    """Return the address that the bus of a section is bound to."""
    return f"tcp://{Address.parse(section.listen)}"


def require_protection(name: str, section: Bus | Router) -> None:
    """Raise `ConfigurationError` if the bus of the section `name` is not protected, as its server does at its start."""
    fail_if(not section.insecure and _is_open(section), f"{name}.listen: {unprotected_error(bus_address(section))}")


def require_quota_protection(section: Bus) -> None:
    """Raise `ConfigurationError` if other machines can reach the quota service without TLS, or its files are wrong."""
    if section.rlqs_cert:
        from headgate.proxy.sockets import server_context  # of no use without this service

        with naming("master.rlqs_cert"):
            server_context(section.rlqs_cert, section.rlqs_key)  # gRPC would not say what is wrong
    fail_if(
        not (section.insecure or section.rlqs_cert) and _is_quota_service_open(section),
        f"master.rlqs: {section.rlqs}: other machines can reach this address, and the quota service has no TLS: "
        "every peer there can hold any client; listen on loopback, set rlqs_cert and rlqs_key (--rlqs-cert, "
        "--rlqs-key), or set insecure (--insecure) on a network that only Envoys reach",
    )


def bus_warnings(section: Bus | Router) -> Iterator[str]:
    """Yield a line for the operator for each weakness that a section permits."""
    if section.insecure and _is_open(section):
        yield (
            f"warning: {bus_address(section)}: other machines can reach this address, and it has no keys "
            "(insecure): every peer there can hold any client"
        )
    if isinstance(section, Bus) and (section.insecure or section.rlqs_cert) and _is_quota_service_open(section):
        weakness = "asks no Envoy for a certificate" if section.rlqs_cert else "has no TLS (insecure)"
        yield (
            f"warning: {section.rlqs}: other machines can reach the quota service, which {weakness}: "
            "every peer there can hold any client"
        )
    yield from key_file_warnings(section.rlqs_key if isinstance(section, Bus) else "", section.curve_key)


def _is_quota_service_open(section: Bus) -> bool:
    """Return whether peers on other machines can connect to the quota service."""
    return bool(section.rlqs) and _is_exposed(f"tcp://{Address.parse(section.rlqs)._replace(port=0)}")


def _is_open(section: Bus | Router) -> bool:
    """Return whether peers on other machines can connect without a key."""
    return not section.curve_allow and _is_exposed(bus_address(section))


def _is_exposed(address: str) -> bool:
    try:
        return is_exposed(address)
    except LinkError:  # the file is checked on another machine than the one that it is for
        return False
