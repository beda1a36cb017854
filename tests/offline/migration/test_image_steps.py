"""Order of the steps of a Dockerfile: no migrated rule permits what the file in the image does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st

from pdp.errors import PolicyError
from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

IMAGE = "ghcr.io/projectnessie/nessie:0.103.0"
PREFIX = "nessie.server.authorization.rules."
READ = PurePosixPath("/deployments/config/application.properties")
SOURCES = (
    "application.properties", "new.properties", "conf/application.properties", "conf/other.properties",
    "prod/application.properties", "prod.d/application.properties",
)  # fmt: skip


def rules_of(migration: Migration) -> dict[str, str]:
    """Return the rules that may permit."""
    if "rules.yaml" not in migration.files:
        return {}
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return {id: text for id, text in rules.items() if not text.startswith("false")}


def image(*steps: str) -> str:
    return "\n".join([f"FROM alpine AS build\nFROM {IMAGE} AS base", *steps]) + "\n"


def written(folder: Path, steps: Sequence[str], sources: Sequence[str] = SOURCES) -> list[Path]:
    """Write a Dockerfile and its sources, each with a rule of its own and one of a common id."""
    (folder / "Dockerfile").write_text(image(*steps))
    for at, name in enumerate(SOURCES):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{PREFIX}own{at}=role=='{at}'\n{PREFIX}common=role=='c{at}'\n")
    return [folder / "Dockerfile", *(folder / name for name in sources)]


def in_image(folder: Path, steps: Sequence[tuple[str, Sequence[str], str]]) -> set[str] | None:
    """Return the source of the file in the image, as Docker copies; none for an unknown one. Several are possible."""
    found: set[str] | None = set()
    for option, sources, target in steps:
        for source in sources:
            globbed = sorted(folder.glob(source)) if "*" in source else [folder / source]
            into = target.endswith("/") or len(sources) > 1 or "*" in source
            if option:
                place = PurePosixPath(target, PurePosixPath(source).name if into else "")
                found = None if READ.is_relative_to(place.parent) else found
                continue
            for one in globbed:
                files = {file.relative_to(one): file for file in one.rglob("*") if file.is_file()} or {Path(): one}
                for below, file in files.items():
                    name = one.name if into and not one.is_dir() else ""
                    if PurePosixPath(target, name, str(below)) == READ:
                        found = {str(file.relative_to(folder))}
                    elif PurePosixPath(target, name, str(below)) == READ.parent and file.name == READ.name:
                        found = None if found is None else {*found, str(file.relative_to(folder))}
    return found


STEPS = st.tuples(
    st.sampled_from(["", "", "", "", "--from=build "]),
    st.lists(st.sampled_from([*SOURCES, "conf/", "conf", "prod/", "prod.d", "p*/*.properties", "*.properties", "conf/*"]),
             min_size=1, max_size=2),
    st.sampled_from([str(READ), str(READ), f"{READ.parent}/", f"{READ.parent}/", str(READ.parent), "/opt/"]),
)  # fmt: skip


def named_by(folder: Path, sources: Sequence[str]) -> set[str]:
    """Return the files that a step copies."""
    found = [one for source in sources for one in (folder.glob(source) if "*" in source else [folder / source])]
    files = [file for one in found for file in (one.rglob("*") if one.is_dir() else [one])]
    return {str(file.relative_to(folder)) for file in files}


@hypothesis.settings(max_examples=80, deadline=None)
@hypothesis.example([("", [READ.name], str(READ)), ("--from=build ", [READ.name, READ.name], str(READ))], set())
@hypothesis.given(st.lists(STEPS, min_size=1, max_size=4), st.sets(st.sampled_from(SOURCES)))
def test_a_migrated_image_permits_no_more_than_the_image(
    steps: list[tuple[str, list[str], str]], held_back: set[str]
) -> None:
    """The rules of a file counted, although a later step put another file to its place."""
    steps = [(option, some, f"{to.rstrip('/')}/" if len(some) > 1 else to) for option, some, to in steps]
    lines = [f"COPY {option}{' '.join(some)} {to}" for option, some, to in steps]
    with TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, lines)
        copied = set[str]().union(*(named_by(folder, some) for option, some, _ in steps if not option))
        migration = migrate_nessie(written(folder, lines, sorted(copied - held_back)), [])
        truth, rules = in_image(folder, steps), rules_of(migration)
    known = [SOURCES.index(one) for one in truth or ()]
    allowed = {f"role=='{sign}{known[0]}'" for sign in ("", "c")} if len(known) == 1 else set()
    assert set(rules.values()) <= allowed, (lines, held_back, truth)
    if not any(option for option, _, _ in steps) and known and not migration.left:
        assert set(rules.values()) == allowed, (lines, held_back, truth)


COPY = f"COPY application.properties {READ}"
OTHER = f"COPY new.properties {READ}"
OVER: dict[str, Sequence[str]] = {
    "later": [COPY, OTHER],
    "later, into the folder": [COPY, f"COPY prod/application.properties {READ.parent}/"],
    "later, by ADD": [COPY, f"ADD new.properties {READ}"],
    "later, in a list": [COPY, f'COPY ["new.properties", "{READ}"]'],
    "later, with options": [COPY, f"COPY --chown=1:1 --link new.properties {READ}"],
    "later, relative": [COPY, f"WORKDIR {READ.parent}", "COPY new.properties application.properties"],
    "later stage": [COPY, "FROM base", OTHER],
    "folder": [COPY, f"COPY prod {READ.parent}/"],
    "folder with a dot": [COPY, f"COPY prod.d {READ.parent}/"],
    "pattern": [COPY, f"COPY p*d/*.properties {READ.parent}/"],
}
"""Steps after which another file is in the image."""
UNKNOWN: dict[str, Sequence[str]] = {
    "archive": [COPY, f"ADD settings.tar.gz {READ.parent}/"],
    "archive of a page": [COPY, f"ADD https://x.example/settings.tar.gz {READ.parent}/"],
    "pattern without a match": [COPY, f"COPY missing/*.properties {READ.parent}/"],
    "pattern that Python does not know": [COPY, f"COPY n**w.properties {READ.parent}/"],
    "folder that is not at hand": [COPY, f"COPY missing.d {READ.parent}/"],
    "folder of a stage": [COPY, f"COPY --from=build conf/ {READ.parent}/"],
    "place of the folder": [COPY, f"COPY prod/application.properties {READ.parent}"],
    "folder of a stage below": [f"WORKDIR {READ.parent}", COPY, "FROM base", "COPY prod/application.properties ."],
    "unknown place": [COPY, "WORKDIR $APP/config", "COPY prod/application.properties ."],
    "unknown place, not at hand": [COPY, "WORKDIR $APP/config", "COPY missing/application.properties ."],
    "unknown place of a folder": [COPY, "WORKDIR $APP", "COPY missing config"],
}


@pytest.mark.parametrize("form", OVER)
def test_the_last_file_at_a_place_counts(tmp_path: Path, form: str) -> None:
    files = [file for file in written(tmp_path, OVER[form]) if file.name == "Dockerfile" or file.parent == tmp_path or
             file.parent.name in " ".join(OVER[form]) or "p*d" in form]  # fmt: skip
    for given in (files, [*files[:1], *(one for one in files[1:] if one != tmp_path / "application.properties")]):
        migration = migrate_nessie(given, [])
        assert not {"role=='0'", "role=='c0'"} & set(rules_of(migration).values())
        gone = [part for part in migration.parts if "a later step copies another file" in part.message]
        assert {part.status for part in gone} == {"ignored"}


@pytest.mark.parametrize("form", UNKNOWN)
def test_a_file_that_a_later_step_may_replace_permits_nothing(tmp_path: Path, form: str) -> None:
    files = written(
        tmp_path,
        UNKNOWN[form],
        ["application.properties", "prod/application.properties"][: 1 + ("prod" in "".join(UNKNOWN[form]))],
    )
    migration = migrate_nessie(files, [])
    assert (rules_of(migration), bool(migration.left)) == ({}, True)


@pytest.mark.parametrize(
    "step",
    ["COPY run.sh /run.sh", "ADD app.tar.gz /opt/", "COPY new.properties /opt/", "COPY run.sh .",
     "COPY *.properties /opt/", f"COPY new.properties {READ.parent}/"],
)  # fmt: skip
def test_steps_to_other_places_change_nothing(tmp_path: Path, step: str) -> None:
    migration = migrate_nessie(written(tmp_path, [COPY, step], ["application.properties"]), [])
    assert {"role=='0'", "role=='c0'"} <= set(rules_of(migration).values())


MOUNTS: dict[str, object] = {
    "folder": {"volumes": ["./conf:/deployments/config"]},
    "file": {"volumes": ["./new.properties:/deployments/config/application.properties"]},
    "long form": {"volumes": [{"type": "bind", "source": "./conf", "target": "/deployments/config"}]},
    "folder, without an image": {"volumes": ["./conf:/deployments"]},
}


@pytest.mark.parametrize("form", MOUNTS)
def test_a_file_of_an_image_under_a_mount_permits_nothing(tmp_path: Path, form: str) -> None:
    """A folder at its place hides it, with all files beside."""
    files = written(
        tmp_path,
        [COPY],
        ["application.properties", "new.properties", "conf/other.properties", "conf/application.properties"],
    )
    (tmp_path / "conf" / "application.properties").unlink()
    files.pop()
    service: dict[str, object] = {"build": ".", "environment": {"X_Y": "z"}, **MOUNTS[form]}  # type: ignore[dict-item]
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": {"nessie": service}}))
    migration = migrate_nessie([tmp_path / "compose.yaml", *files], [])
    assert not {"role=='0'", "role=='c0'"} & set(rules_of(migration).values())
    assert migration.left


RULE = "NESSIE_SERVER_AUTHORIZATION_RULES_"
ADMIN = "LAKEKEEPER__INSTANCE_ADMINS"
BODIES = {
    "": "RUN <<EOF\n{}\nEOF",
    "in quotes": "RUN cat > f <<'SH'\n{}\nSH",
    "in double quotes": 'RUN <<"E-F" sh\n{}\nE-F',
    "with tabs": "RUN --network=none <<-EOF\n\t{}\n\tEOF",
    "two": "RUN cat <<A <<B > f\nx\nA\n{}\nB",
    "two, first": "RUN cat <<A <<B > f\n{}\nA\nB\nB",
    "copied": "COPY <<EOF /opt/\n{}\nEOF",
    "of a descriptor": "RUN cat 3<<EOF\n{}\nEOF",
    "continued": "RUN true && \\\n  cat <<EOF\n{}\nEOF",
    "for children": "ONBUILD RUN <<EOF\n{}\nEOF",
}


@pytest.mark.parametrize("form", BODIES)
def test_bodies_of_heredocs_are_no_steps(tmp_path: Path, form: str) -> None:
    kept = f"ENV {RULE}A=\"role=='a'\"\n{COPY}"
    for line in (f"ENV {RULE}B=true", "FROM alpine", f"ENV {RULE}A=true", OTHER, "CMD []"):
        migration = migrate_nessie(written(tmp_path, [kept, BODIES[form].format(line), "USER 1"], SOURCES[:1]), [])
        assert set(rules_of(migration).values()) <= {"role=='a'", "role=='0'", "role=='c0'"}, line
        assert ("a" in rules_of(migration)) == (f"{RULE}A" not in line)
    steps = f"FROM quay.io/lakekeeper/catalog:1\nENV {ADMIN}=[oidc~a]\n"
    (tmp_path / "Dockerfile").write_text(steps + BODIES[form].format(f"ENV {ADMIN}=[oidc~eve]") + "\n")
    assert "eve" not in migrate_lakekeeper([tmp_path / "Dockerfile"]).files["pdp.yaml"]


@pytest.mark.parametrize("step", ["RUN <<EOF", "RUN cat<<EOF", "COPY <<A <<B /x/\nA", 'RUN <<"A B"', "RUN <<E\n E"])
def test_a_heredoc_without_a_known_end_is_refused(tmp_path: Path, step: str) -> None:
    (tmp_path / "Dockerfile").write_text(image(f"ENV {RULE}A=true", step, f"ENV {RULE}B=true"))
    with pytest.raises(PolicyError, match="heredoc"):
        migrate_nessie([tmp_path / "Dockerfile"], [])


@pytest.mark.parametrize("step", ["RUN cat <<< x", 'RUN echo "<<EOF"', "RUN echo $((1<<2))", "RUN echo '<<EOF'"])
def test_signs_of_no_heredoc_take_no_lines(tmp_path: Path, step: str) -> None:
    (tmp_path / "Dockerfile").write_text(image(step, f"ENV {RULE}A=\"role=='a'\""))
    assert rules_of(migrate_nessie([tmp_path / "Dockerfile"], [])) == {"a": "role=='a'"}


@pytest.mark.parametrize("target", [str(READ), f"{READ.parent}/", "application.properties"])
@pytest.mark.parametrize("name", ["EOF", READ.name])
def test_a_copied_heredoc_is_an_unknown_file(tmp_path: Path, target: str, name: str) -> None:
    steps = [COPY, f"WORKDIR {READ.parent}", f"COPY <<{name} {target}\nx=y\n{name}"]
    migration = migrate_nessie(written(tmp_path, steps, SOURCES[:1]), [])
    assert not {"role=='0'", "role=='c0'"} & set(rules_of(migration).values()) or (name == "EOF" and target[-1] == "/")
    assert any("inside of the Dockerfile" in part.message for part in migration.left)


@pytest.mark.parametrize("line", ["\"role=='a\\\n'\"", "\"role==\\  \n'a'\"", "\"ro\\\nle==\\\n\n# x\n'a'\""])
def test_a_continued_line_has_no_blank_of_its_own(tmp_path: Path, line: str) -> None:
    (tmp_path / "Dockerfile").write_text(image(f"ENV {RULE}A={line}"))
    assert rules_of(migrate_nessie([tmp_path / "Dockerfile"], [])) == {"a": "role=='a'"}


def test_another_sign_for_escapes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("# escape=`\n" + image(f"ENV {RULE}A=true"))
    with pytest.raises(PolicyError, match="escape"):
        migrate_nessie([tmp_path / "Dockerfile"], [])


STAGES = f"FROM {IMAGE} AS Prod\nENV {RULE}A=\"role=='a'\"\nFROM prod AS dev\nENV {RULE}B=true\nCOPY . /x\n"


def built(folder: Path, build: object, dockerfile: str = STAGES, **service: object) -> list[Path]:
    (folder / "Dockerfile").write_text(dockerfile)
    services = {"nessie": {"build": build, **service}} if build else {"nessie": service}
    (folder / "compose.yaml").write_text(yaml.safe_dump({"services": services}))
    return [folder / "Dockerfile", folder / "compose.yaml"]


@pytest.mark.parametrize("target", ["prod", "PROD"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_stages_up_to_the_target_count(tmp_path: Path, target: str, is_reversed: bool) -> None:
    files = built(tmp_path, {"context": ".", "target": target})
    migration = migrate_nessie(files[::-1] if is_reversed else files, [])
    assert rules_of(migration) == {"a": "role=='a'"}
    whole = migrate_nessie(built(tmp_path, "."), [])
    assert rules_of(whole) == {"a": "role=='a'", "b": "true"}


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no stage `x`"):
        migrate_nessie(built(tmp_path, {"context": ".", "target": "x"}), [])
    files = built(tmp_path, {"context": ".", "target": "prod"})
    (tmp_path / "compose.override.yaml").write_text("services: {nessie: {build: {context: ., target: dev}}}\n")
    with pytest.raises(PolicyError, match="several stages"):
        migrate_nessie([*files, tmp_path / "compose.override.yaml"], [])


NOT_BUILT: dict[str, tuple[object, dict[str, object]]] = {
    "image alone": (None, {"image": IMAGE}),
    "image of the company": (None, {"image": "registry.local/nessie", "environment": {"X_Y": "z"}}),
    "text": ({"dockerfile_inline": f"FROM {IMAGE}\n"}, {}),
    "context": ({"context": "sub"}, {}),
    "short context": ("sub", {}),
    "other file": ({"context": ".", "dockerfile": "Other"}, {}),
    "repository": ("https://x.example/y.git", {}),
}


@pytest.mark.parametrize("form", NOT_BUILT)
def test_a_dockerfile_that_compose_does_not_build_sets_nothing(tmp_path: Path, form: str) -> None:
    build, service = NOT_BUILT[form]
    (tmp_path / "a.env").write_text(f"{RULE}C=role=='c'\n{RULE}B=false\n")
    files = built(tmp_path, build, STAGES, **service)
    migration = migrate_nessie(files, [tmp_path / "a.env"])
    assert rules_of(migration) == {}
    assert [part.subject for part in migration.left if part.place.startswith(str(files[0]))] == ["`Dockerfile`"]


@pytest.mark.parametrize("place", ["/deployments/config", "/deployments", "/deployments/config/", "/", "${PLACE}"])
@pytest.mark.parametrize("form", ["{}", "{}:size=1m", "{}:mode=755,uid=1"])
@pytest.mark.parametrize("is_list", [False, True])
def test_a_tmpfs_hides_the_files_of_the_image(tmp_path: Path, place: str, form: str, is_list: bool) -> None:
    files = written(tmp_path, [COPY], SOURCES[:1])
    text = form.format(place)
    service = {"build": ".", "tmpfs": ["/tmp", text] if is_list else text}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": {"nessie": service}}))
    migration = migrate_nessie([tmp_path / "compose.yaml", *files], [])
    assert (rules_of(migration), bool(migration.left)) == ({}, True)
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": {"nessie": {"build": ".", "tmpfs": "/tmp"}}}))
    assert "role=='0'" in rules_of(migrate_nessie([tmp_path / "compose.yaml", *files], [])).values()


STARTED: dict[str, tuple[Sequence[str], dict[str, object]]] = {
    "folder of compose": ([], {"working_dir": "/opt", "command": ["java", "-jar", "/x.jar"]}),
    "folder of compose, command of the image": (['CMD ["java", "-jar", "/x.jar"]'], {"working_dir": "/opt"}),
    "folder of the image": (["WORKDIR /opt"], {"entrypoint": ["java", "-jar", "/x.jar"]}),
}


@pytest.mark.parametrize("form", STARTED)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_command_in_another_folder_reads_no_file_of_the_image(tmp_path: Path, form: str, is_reversed: bool) -> None:
    steps, service = STARTED[form]
    files = written(tmp_path, [COPY, *steps], SOURCES[:1])
    own = {key: value for key, value in service.items() if key != "working_dir"}
    for keys, is_read in ((service, False), ({**own, "working_dir": "/deployments"}, "WORKDIR /opt" not in steps)):
        (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": {"nessie": {"build": ".", **keys}}}))
        given = [tmp_path / "compose.yaml", *files]
        migration = migrate_nessie(given[::-1] if is_reversed else given, [])
        assert ("role=='0'" in rules_of(migration).values()) == is_read
