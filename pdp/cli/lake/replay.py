"""`pdp pipeline replay`: recorded checks decided again, as recorded or by candidate policies.

Candidates are files of the kinds that `pdp dry-run --candidate` takes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pdp.cli.dry_run.checks import parse_time
from pdp.cli.dry_run.command import DIFFERENT, MultiValueCommand
from pdp.cli.dry_run.sides import FileKind, files_by_kind, with_cedar, with_scopes
from pdp.cli.lake.options import lake_options, one_line_spark_errors, open_chosen_lake, stage_notices
from pdp.cli.options import absolute_paths, format_option, refuse_beside
from pdp.cli.progress import Progress
from pdp.cli.wiring import Wiring
from pdp.config.load import load_settings
from pdp.config.settings import Settings
from pdp.engines.cedar.entity_files import EntityFiles, read_entities_json
from pdp.engines.cedar.model import entities_as_json
from pdp.engines.cedar.policies import joined_text
from pdp.engines.cedar.schema import read_sources
from pdp.engines.row_access.policies import read_documents
from pdp.engines.scopes.explain import load_entries
from pdp.errors import ConfigError, InvalidArgument, PolicyError
from pdp.facts.snapshot import Facts
from pdp.offline.replay.basis import CandidatePolicies
from pdp.store.world import load_world

if TYPE_CHECKING:
    from pdp.lake.replay.replaying import ReplayResult


@click.command(cls=MultiValueCommand)
@lake_options
@click.option("--recorded", is_flag=True, help="Decide every check again at its recorded revision: no difference.")
@click.option("--candidate", multiple=True, metavar="FILE...", help="New policies: rules, a world, rows, a pdp.yaml.")
@click.option("--forbid-candidate", multiple=True, metavar="FILE...", help="New rule files that forbid.")
@click.option("--since", metavar="TIME", help="Only records from this time on, such as 2026-01-31T12:00Z.")
@click.option("--until", metavar="TIME", help="Only records before this time.")
@click.option("--principal", default="", help="Only checks about this principal.")
@click.option("--listings", is_flag=True, help="Also decide the checks of listings under a candidate.")
@click.option("--explain", is_flag=True, help="Print Spark's plan, and decide nothing.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def replay(
    composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...],
    properties: tuple[str, ...], form: str, **options: Any,
) -> None:  # fmt: skip
    """Decide the recorded checks of a lake again.

    With --recorded, each check is decided at its revision, by the policies and the grants that the lake has. With
    --candidate, files replace their kind of policies, and everything else stays as recorded: rules (.properties, or
    .yaml with `rules`), a world of grants (.json, or .yaml with `objects` or `grants`), row policies (.yaml with
    `tables`, `masks` or a list of `policies`), or all settings of a pdp.yaml but the grants.

    Prints who gains and who loses access, and writes the differences into the table `replay_differences`.

    Exits with 3 if a decision differs, else with 0.
    """
    candidates = options["candidate"] or options["forbid_candidate"]
    if bool(candidates) == options["recorded"]:
        raise InvalidArgument("give either --recorded or a --candidate: the new policies")
    if options["explain"]:
        refuse_beside("--explain", useless=("--format",))
    if options["recorded"]:
        refuse_beside("--recorded", useless=("--listings",))
    since, until = parse_time(options["since"], "--since"), parse_time(options["until"], "--until")
    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, properties)
        from pdp.lake.replay.archive import read_archive  # noqa: PLC0415
        from pdp.lake.replay.questions import ReplayChoice  # noqa: PLC0415
        from pdp.lake.replay.replaying import LakeReplay, read_result  # noqa: PLC0415
        from pdp.lake.tables import RECORDED  # noqa: PLC0415
        from pdp.offline.replay.basis import AS_RECORDED  # noqa: PLC0415

        progress.say("reading policies and facts")
        archive = read_archive(opened)
        candidate, by_second = AS_RECORDED, False
        if candidates:
            files = options["candidate"], options["forbid_candidate"]
            candidate = read_candidate(composition, *files, archive.bundles)
            by_second = reads_time(composition, candidate, archive.bundles)
        listings = options["listings"] or options["recorded"]
        choice = ReplayChoice(
            since, until, options["principal"], listings, by_revision=not candidate.is_complete, by_second=by_second
        )
        names = ", ".join(Path(file).name for file in candidates) if candidates else RECORDED
        with LakeReplay(opened, archive, composition.rebuild_pdp, choice, candidate) as replaying:
            if options["explain"]:
                click.echo(replaying.plan())
                return
            result = read_result(replaying.save(names, stage_notices(progress, opened)))
    _print(result, form)
    raise SystemExit(DIFFERENT if result.totals.differs else 0)


def _print(result: ReplayResult, form: str) -> None:
    """Print a result; raise InvalidArgument for one without a check."""
    from pdp.cli.lake.replay_report import print_json, print_text  # noqa: PLC0415  help needs none

    if not (result.totals.decided or result.totals.undecidable):
        raise InvalidArgument("nothing to decide: the lake has no such records")
    print_json(result) if form == "json" else print_text(result)
    sys.stdout.flush()


def read_candidate(
    composition: Wiring, files: Sequence[str], forbid: Sequence[str], bundles: Mapping[str, bytes]
) -> CandidatePolicies:
    """Return the policies of files. `bundles` are the recorded ones, which a candidate changes in parts.

    Raise InvalidArgument, ConfigError or PolicyError for an unusable file.
    """
    kinds = files_by_kind(files)
    facts = load_world(kinds["world"][0]) if kinds["world"] else None
    if kinds["settings"]:
        settings = load_settings(Path(kinds["settings"][0]), ()).with_policies(kinds["rules"] or None, None)
        others = {"forbid": absolute_paths(forbid), "row_access": tuple(kinds["rows"])}
        update = {key: paths for key, paths in others.items() if paths}
        settings = settings.model_copy(update={"policies": settings.policies.model_copy(update=update)})
        settings = with_cedar(with_scopes(settings, kinds["permissions"]), kinds)
        pdp = composition.build_pdp(settings, Facts.empty(), composition.read_rules(settings))
        return CandidatePolicies(bundle=pdp.bundle.text, facts=facts)
    candidate = CandidatePolicies(
        _rules(composition, kinds["rules"], bundles) if kinds["rules"] else None,
        _rules(composition, absolute_paths(forbid), bundles) if forbid else None,
        [msgspec.to_builtins(each.document) for each in read_documents(list(map(Path, kinds["rows"])))] or None,
        facts=facts,
        cedar=_cedar_parts(kinds) or None,
        permissions=_permissions(kinds["permissions"]) or None,
    )
    _require_usable(composition, candidate, bundles)
    return candidate


def _permissions(files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries of permission files, in the form of a bundle."""
    return [msgspec.to_builtins(each.entry) for each in load_entries(list(map(Path, files)))]


def _cedar_parts(kinds: Mapping[FileKind, Sequence[str]]) -> dict[str, Any]:
    """Return the parts of Cedar that files replace, in the form of a bundle."""
    chosen: tuple[FileKind, ...] = ("cedar", "entities", "schema")
    texts = {kind: read_sources(map(Path, kinds[kind])) for kind in chosen}
    parts: dict[str, Any] = {}
    if texts["cedar"]:
        parts["policies"] = joined_text(texts["cedar"])
    if texts["entities"]:
        declared = read_entities_json(texts["entities"])
        parts["entities"] = entities_as_json(EntityFiles({each.uid: each.entity for each in declared}))
    if texts["schema"]:
        parts["schema"] = texts["schema"][0].text
    return parts


def reads_time(composition: Wiring, candidate: CandidatePolicies, bundles: Mapping[str, bytes]) -> bool:
    """Tell whether a rule of the candidate depends on the time of a check."""
    texts = [candidate.bundle] if candidate.bundle else bundles.values()
    return any(
        b"now" in text and composition.rebuild_pdp(text).bundle.reads_time for text in map(candidate.text_from, texts)
    )


def _rules(composition: Wiring, files: Sequence[str], bundles: Mapping[str, bytes]) -> dict[str, str]:
    """Return the texts of rules by id, compiled once with the extensions that recorded policies use."""
    extensions = {name for text in bundles.values() for name in _sources(text).get("celExtensions", ())}
    settings = load_settings(None, ()).with_policies(files, None)
    policies = settings.policies.model_copy(update={"cel_extensions": tuple(sorted(extensions))})
    rules, _ = composition.read_rules(_with(settings, policies))
    return dict(rules.texts)


def _with(settings: Settings, policies: Any) -> Settings:
    return settings.model_copy(update={"policies": policies})


def _sources(text: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _require_usable(composition: Wiring, candidate: CandidatePolicies, bundles: Mapping[str, bytes]) -> None:
    """Raise the problem of a candidate that fits none of the recorded bundles."""
    if not candidate.replaces_policies:
        return
    problem: ConfigError | PolicyError | InvalidArgument | None = None
    for text in bundles.values():
        try:
            composition.rebuild_pdp(candidate.text_from(text))
        except (ConfigError, PolicyError, InvalidArgument) as error:
            problem = problem or error
        else:
            return
    raise problem or InvalidArgument(
        "the lake has no bundle, so that nothing can be decided: run `pdp pipeline ingest`"
    )
