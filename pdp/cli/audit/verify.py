"""`pdp audit verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from pdp.audit.verify.verify import AuditFinding, AuditVerifier, CheckedCounts, VerifyOptions
from pdp.cli.audit.options import AuditPlace, folder_options
from pdp.cli.audit.text import safe_json
from pdp.cli.progress import Progress
from pdp.cli.terminal import one_line_errors, plural, print_lines, visible
from pdp.cli.wiring import Wiring
from pdp.config.audit import read_chain_keys


class _Summary(msgspec.Struct, frozen=True, tag_field="kind", tag="summary"):
    """Last line of the JSON output."""

    findings: int
    counts: CheckedCounts


@click.command()
@folder_options
@click.option(
    "--key-file", type=click.Path(path_type=Path), help="Keys of the chain, one a line. Default: `audit.hmac_key`."
)
@click.option(
    "--allow-unproven", is_flag=True, help="With a key: accept files without a chain, and chains without a key."
)
@click.option(
    "--allow-recovered", is_flag=True, help="Accept records that a start found behind the chain of a killed process."
)
@click.option(
    "--partial", is_flag=True, help="Accept that instances, and the first segments of an instance, are elsewhere."
)
@click.option("--json", "as_json", is_flag=True, help="Print findings and a summary, one JSON object a line.")
@click.pass_obj
@one_line_errors
def verify(composition: Wiring, /, config: Path | None, overrides: tuple[str, ...], **values: Any) -> None:
    """Find everything that was edited, cut, moved or taken away from the audit.

    One line for each finding: the file, the line, the record, and its kind. Exits with 1 if there is a finding.

    Works while services write. Without a key, only edits of people who did not compute the chain again are found.
    """
    place = AuditPlace(composition, config, overrides, values["audit"])
    keys: tuple[bytes, ...] = ()
    if values["key_file"] is not None:
        keys = read_chain_keys(values["key_file"])
    elif place.settings is not None:
        keys = place.settings.chain_keys()
    found = 0
    with Progress("verifying the audit") as progress:
        verifier = AuditVerifier(
            place.folder,
            VerifyOptions(keys, values["allow_unproven"], values["partial"], values["allow_recovered"]),
            lambda records: progress.say(f"verified {plural(records, 'record')}"),
        )
        for finding in verifier.findings():
            found += 1
            print_lines([_json(finding) if values["as_json"] else _text(finding)])
    summary = _Summary(found, verifier.counts)
    print_lines([_json(summary) if values["as_json"] else _summary_text(summary)])
    sys.stdout.flush()
    raise SystemExit(1 if found else 0)


def _text(finding: AuditFinding) -> str:
    return visible(f"{finding.place}: {finding.message} ({finding.kind})")


def _json(value: AuditFinding | _Summary) -> str:
    return safe_json(msgspec.json.encode(value))


def _summary_text(summary: _Summary) -> str:
    counts = summary.counts
    read = ", ".join(
        (plural(counts.instances, "instance"), plural(counts.files, "file"), plural(counts.records, "record"))
    )
    parts = [
        f"{counts.keyed:,} under a chain with a key" if counts.keyed else f"{counts.proven:,} under a chain",
        f"{counts.recovered:,} that a start found behind the chain of a killed process" if counts.recovered else "",
        f"{counts.unproven:,} at the end of an open file" if counts.unproven else "",
        f"{counts.unchained:,} in files without a chain" if counts.unchained else "",
    ]
    result = plural(summary.findings, "finding") if summary.findings else "no finding"
    return f"{result}: {read}; {', '.join(part for part in parts if part)}"
