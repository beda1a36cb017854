"""`pdp check` and `pdp identity`: questions to the configuration, without a service."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from pdp.cli.options import chosen_settings, config_options, policy_options, say_configuration
from pdp.cli.terminal import one_line_errors
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.decision.codec import decision_body, decode_checks
from pdp.errors import ConfigError, Unauthenticated, Unavailable
from pdp.identity.callers import EMBEDDED_CALLER, Callers, Peer
from pdp.identity.evidence import admit
from pdp.identity.tokens import MAX_TOKEN, Tokens
from pdp.model.question import Caller
from pdp.telemetry import Telemetry

LINES_PER_BATCH: Final = 1000
"""Lines decided together. Bounds the memory for long inputs."""


@click.command()
@policy_options
@click.option("--explain", is_flag=True, help="Add a trace to every decision.")
@click.pass_obj
@one_line_errors
def check(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], rules: tuple[str, ...],
    world: str | None, explain: bool,
) -> None:  # fmt: skip
    """Decide checks from stdin.

    The input is one JSON object a line. The output is one decision a line, in order: one for each resource.

    Example line: {"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}

    Exits with 1 if a line is not a valid check. A denial is a normal decision and does not change the exit code.
    """
    settings = chosen_settings(composition, config, overrides, rules, world)
    pdp = composition.pdp(settings)
    say_configuration(settings)
    rejected = False
    with asyncio.Runner() as runner:
        lines = (line for line in sys.stdin.buffer if line.strip())
        while some := list(itertools.islice(lines, LINES_PER_BATCH)):
            request = decode_checks(some, unique_keys=True).request("cli", explain=explain)
            answer = runner.run(pdp.check(admit(request, EMBEDDED_CALLER)))
            rejected = rejected or bool(answer.rejected)
            for at in range(request.size):
                sys.stdout.buffer.write(msgspec.json.encode(decision_body(answer.decision(at))) + b"\n")
            sys.stdout.buffer.flush()
    raise SystemExit(1 if rejected else 0)


@click.group()
def identity() -> None:
    """Say what a token becomes by the configuration."""


@identity.command("test")
@config_options
@click.argument("token", type=click.Path(allow_dash=True, path_type=Path))
@click.pass_obj
@one_line_errors
def test_token(composition: Wiring, config: Path | None, overrides: tuple[str, ...], token: Path) -> None:
    """Say what the token in a file becomes, or what to change if it is refused. `-` is stdin.

    The keys are fetched as the service does. Nothing of the token is printed but the evidence that policies read, and
    the issuer and key of a refused one. Exits with 1 if the token is refused.
    """
    settings = chosen_settings(composition, config, overrides, (), None)
    say_configuration(settings)
    refused, lines = asyncio.run(_judge(settings, _read_token(token)))
    for line in lines:
        click.echo(line)
    raise SystemExit(1 if refused else 0)


def _read_token(file: Path) -> str:
    """Return the text of a file or of stdin, without `Bearer`; raise ConfigError."""
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as opened:
            text = opened.read(4 * MAX_TOKEN).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from None
    return text.removeprefix("Bearer ").strip()


async def _judge(settings: Settings, text: str) -> tuple[bool, list[str]]:
    """Return if a token is refused, and the lines to print."""
    tokens = Tokens(settings, Telemetry())
    await tokens.start()
    try:
        caller = await Callers(settings, tokens).identify(Peer(authorization=(f"Bearer {text}",)))
        return False, [*_evidence(caller)]
    except Unauthenticated as error:
        return True, [f"refused: {error}", *_advice(settings, error)]
    except Unavailable as error:
        return True, [f"refused: {error}", *(f"{name}: {trouble}" for name, trouble in tokens.troubles().items())]
    finally:
        await tokens.stop()


def _evidence(caller: Caller) -> Iterator[str]:
    principal = caller.own
    assert principal  # a token names one
    yield f"principal: {json.dumps(principal.id)}"
    if caller.name != principal.id:
        yield f"caller: {json.dumps(caller.name)}, may assert {', '.join(sorted(caller.may_assert)) or 'nothing'}"
    for name, values in (("roles", principal.roles), ("groups", principal.groups)):
        state = " (unknown)" if name in principal.unknown else ""
        yield f"{name}: {json.dumps([*values])}{state}"
    yield f"attributes: {json.dumps(json.loads(principal.attributes or '{}'))}"
    yield f"unknown: {', '.join(principal.unknown) or 'nothing'}"
    if principal.unseen:
        yield f"absent, so unknown to forbids until a token has it: {', '.join(principal.unseen)}"


_CHANGES: Final[Mapping[str, str]] = {
    "issuer": "write the issuer of the token into `issuer`, to the letter, with its slash at the end if there is one",
    "another audience": "write the audience of the token into `audiences`, or get a token for this one",
    "no audience of this service": "write `audiences`, or a caller or trusted engine that names the token",
    "expired": "get a new token; `leeway_seconds` is for clocks that differ",
    "not yet valid": "compare the clocks; `leeway_seconds` is for clocks that differ",
    "signature does not verify": "let `jwks` name the keys of this issuer: the token is of another one, or was changed",
    "no key of its provider fits": "let `jwks` name the keys of this issuer, and see that its key set has the key id",
    "is signed in a way": "write its algorithm into `algorithms`, unless it uses a shared key or none",
    "subject": "let `claims.subject` name a claim with the subject",
    "is no access token": "send the access token in place of this one",
    "no access token": "send an access token",
    "`typ`": "send an access token",
    "`cnf`": "write `sender_constrained: allow` if tokens may be used by everybody who has them",
    "claims.separator": "write `claims.separator`, or let the provider send a list",
    "claims.types": "write the type of the claim into `claims.types`",
    "no list of texts": "let `claims` name a claim with a list of texts; `claims.keys_of` takes the keys of an object",
    "no object": "let the path in `claims` end at the value",
    "lacks a claim": "let the provider write the claim",
    "no signed JWT": "send a JWT: an opaque token, such as an access token of Google, cannot be verified",
}
"""Words of a refusal -> what to change. The first that fits counts."""


def _advice(settings: Settings, error: Unauthenticated) -> Iterator[str]:
    if found := next((change for words, change in _CHANGES.items() if words in str(error)), ""):
        yield f"to change: {found}"
    if error.unverified:
        yield f"the token says: issuer `{error.unverified.issuer}`, key `{error.unverified.kid}`"
    known = [each.issuer for provider in settings.identity.providers.values() for each in provider.each_issuer]
    yield f"configured issuers: {', '.join(f'`{issuer}`' for issuer in known) or 'none'}"
