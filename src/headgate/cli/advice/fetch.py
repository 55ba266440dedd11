"""`headgate advice fetch`: print what an origin advises an agent, and for how long."""

import time
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.advice.options import CA, as_json, identity, trusted
from headgate.cli.output import exit_with_failure, print_json, printable

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity


@click.command(short_help="Print what an origin advises an agent, and for how long.")
@click.argument("origin")
@identity()
@CA
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def fetch(*, origin: str, identity: "AgentIdentity", ca: str | None, is_json: bool) -> None:
    """Fetch an origin's traffic advice with one request, and print the entry for the agent with these names.

    ORIGIN is a URL; its path is ignored, and the default scheme is https. Advice is fetched only from https origins and
    from this machine. The exit code is 0 if there is advice for the agent, and 1 if not.

    \b
    headgate advice fetch https://example.com
    headgate advice fetch https://example.com --identity ExampleBot
    headgate advice fetch https://example.com --identity ExampleBot --json | jq .result.fraction
    """
    found = _fetched(origin if "://" in origin else f"https://{origin}", identity, trusted(ca))
    if is_json:
        print_json(found)
    else:
        fresh = "" if found["fresh_for"] is None else f"; ask again in {found['fresh_for']:.0f} s"
        click.echo(f"{printable(found['origin'] or origin)}: {printable(found['reason'])}{fresh}")
    if not isinstance(found["result"], dict):
        exit_with_failure()


def _fetched(origin: str, identity: "AgentIdentity", tls: Any) -> dict[str, Any]:
    from headgate.advice.fetching import advice_request, interpret_fully
    from headgate.advice.freshness import fresh_for
    from headgate.fetch.fetcher import fetch_advice
    from headgate.http.url import serialised_origin

    found: dict[str, Any] = {"origin": serialised_origin(origin), "url": None, "result": None, "fresh_for": None}
    request = advice_request(origin, identity)
    if found["origin"] is None:
        return {**found, "reason": "not a URL with an origin; expected a form such as https://example.com"}
    if request is None:
        return {**found, "reason": "advice is fetched only from https origins and from this machine"}
    response = fetch_advice(request, tls=tls)
    result, reason = interpret_fully(response, identity)
    seconds = fresh_for(response, result, now=time.time())
    return {**found, "url": request.url, "result": as_json(result), "fresh_for": seconds, "reason": reason}
