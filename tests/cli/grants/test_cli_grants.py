"""Tests of `pdp grants` on real databases: writes, output and refusals."""

from __future__ import annotations

import json
import os
import pwd
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from spec.grant_worlds import worlds
from support.clients.http_client import fetch
from support.service.command_line import grants
from support.service.commands import run_pdp
from support.service.serving import serve_process
from support.service.stores import content

from pdp.cli.grants import command as imports
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import Actor, GrantEdits, ObjectEdits
from pdp.errors import InvalidArgument, Unavailable
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, Object, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.sql import open_store
from pdp.store.store import LogEntry
from pdp.store.world import load_world, parse_world, read_world
from pdp.store.world_text import entry_text, world_lines
from pdp.store.writer import Writer, import_changes, plan_import, remaining_changes

WORLD: dict[str, Any] = {
    "objects": [
        "project:p1",
        {"object": "warehouse:lake", "parent": "project:p1", "managedAccess": True},
        {"object": "role:analyst", "parent": "project:p1"},
        {"object": "table:lake/sales/orders", "id": "8"},
    ],
    "grants": [
        {"principal": "role:analyst", "privilege": "select", "object": "namespace:lake/sales"},
        {"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:analyst"},
        {"principal": "user:oidc~dave", "privilege": "ownership", "object": "table:lake/sales/orders", "id": "7"},
    ],
}
ALICE = ("user:oidc~alice", "select", "table:lake/sales/orders")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a configuration for an SQLite store and a world file."""
    (tmp_path / "pdp.yaml").write_text('store: {url: "sqlite:///pdp.db"}\n')
    (tmp_path / "world.json").write_text(json.dumps(WORLD))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(*arguments: str | Path) -> str:
    """Run a command that succeeds; return the output."""
    ended = grants(*arguments)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def refused(*arguments: str | Path) -> str:
    """Run a command that is refused; return the line on stderr."""
    ended = grants(*arguments)
    assert (ended.exit_code, ended.stdout) == (2, ""), ended.output
    assert ended.stderr.startswith("pdp: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def log(url: str = "sqlite:///pdp.db") -> list[LogEntry]:
    with closing(open_store(url)) as store:
        facts = store.load()
        return list(store.since(Facts(facts.epoch, 0)))


def facts_of(url: str = "sqlite:///pdp.db") -> Facts:
    with closing(open_store(url)) as store:
        return store.load()


def export(facts: Facts, **how: bool) -> str:
    return "".join(f"{line}\n" for line in world_lines(facts, **how))


# --- import -------------------------------------------------------------------------------------------------------


def test_an_import_writes_a_world_to_the_store(folder: Path) -> None:
    printed = done("import", "world.json")
    assert "3 grants added, 4 objects registered\n" in printed
    assert "  + select on namespace:lake/sales for role:analyst\n" in printed
    assert "  + warehouse:lake, parent project:p1, managedAccess true\n" in printed
    facts = facts_of()
    assert printed.endswith(f"revision {facts.revision()}\n")
    assert content(facts) == content(load_world("world.json"))
    assert [revision.actor for revision in log()] == [f"cli:{pwd.getpwuid(os.getuid()).pw_name}"]


@pytest.mark.process
@pytest.mark.parametrize("text", [json.dumps(WORLD), yaml.safe_dump(WORLD)])
def test_an_import_reads_stdin(folder: Path, text: str) -> None:
    printed = run_pdp("grants", "import", "-", stdin=text, cwd=folder)
    assert printed.returncode == 0, printed.stderr
    assert "3 grants added, 4 objects registered\n" in printed.stdout
    assert not (folder / "-").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            '{"grants": [{"principal": "role:a", "privilege": "selct", "object": "table:lake/s/t"}]}',
            "-:1:50: grants[0].privilege: ",
        ),
        ("grants:\n  - {principal: 1}\n", "-:2:"),
        ("grants: [\n", "-:2:1: "),
        (b"\xff", "cannot read the world: "),
    ],
)
def test_an_unusable_stdin_is_refused_with_its_place(folder: Path, text: str | bytes, wrong: str) -> None:
    printed = run_pdp("grants", "import", "-", stdin=text, cwd=folder)
    assert (printed.returncode, printed.stdout) == (2, "")
    assert wrong in printed.stderr, printed.stderr
    assert printed.stderr.count("\n") == 1


def test_a_second_import_writes_nothing_and_says_so(folder: Path) -> None:
    done("import", "world.json")
    assert done("import", "world.json").startswith("nothing to change: the store has all of `world.json`\nrevision ")
    pruned = done("import", "world.json", "--prune")
    assert pruned.startswith("nothing to change: the store has all of `world.json` and no more\n")
    assert len(log()) == 1


def test_a_dry_run_says_the_same_and_writes_nothing(folder: Path) -> None:
    printed = done("import", "world.json", "--dry-run")
    assert "3 grants would be added, 4 objects would be registered\n" in printed
    assert not (folder / "pdp.db").exists()
    done("import", "world.json")
    done("remove", "role:analyst", "select", "namespace:lake/sales")
    assert "1 grant would be added\n" in done("import", "world.json", "--dry-run")
    assert len(log()) == 2


def test_an_import_changes_only_given_fields(folder: Path) -> None:
    done("import", "world.json")
    done("add", *ALICE)
    other = {"objects": [{"object": "warehouse:lake", "managedAccess": False}, "role:analyst"]}
    (folder / "other.yaml").write_text(yaml.safe_dump(other))
    printed = done("import", "other.yaml")
    assert printed.startswith("  ~ warehouse:lake: managedAccess true -> none\n1 object changed\n")
    facts = facts_of()
    assert facts.object(("warehouse", ("lake",))) == Object(("warehouse", ("lake",)), project="p1")
    assert facts.object(("role", ("analyst",))).project == "p1"
    assert len(list(facts.grants())) == 4


def test_a_pruning_import_makes_the_store_equal_the_file(folder: Path) -> None:
    done("import", "world.json")
    (folder / "less.json").write_text(json.dumps({"objects": ["warehouse:lake"], "grants": WORLD["grants"][:1]}))
    printed = done("import", "less.json", "--prune")
    assert "2 grants removed, 1 object changed, 3 registrations deleted\n" in printed
    assert "  - ownership on table:lake/sales/orders (id 7) for user:oidc~dave\n" in printed
    assert content(facts_of()) == content(load_world("less.json"))


def test_json_has_every_change(folder: Path) -> None:
    done("import", "world.json")
    changed = {
        "objects": ["project:p2", {"object": "warehouse:lake", "parent": "project:p2"}],
        "grants": WORLD["grants"][1:],
    }
    (folder / "changed.json").write_text(json.dumps(changed))
    before = facts_of().revision()
    dry, real = (
        json.loads(done("import", "changed.json", "--prune", "--format", "json", *more)) for more in (["--dry-run"], [])
    )
    assert (dry.pop("dryRun"), real.pop("dryRun")) == (True, False)
    assert (before.sequence, facts_of().sequence) == (1, 2)
    assert (dry.pop("revision"), real.pop("revision")) == (str(before), str(facts_of().revision()))
    assert dry == real
    assert real["counts"] == {"added": 0, "removed": 1, "registered": 1, "changed": 1, "deleted": 3}
    assert real["changes"] == [
        {"change": "removed", "grant": WORLD["grants"][0]},
        {"change": "deleted", "was": {"object": "project:p1"}},
        {"change": "deleted", "was": {"object": "role:analyst", "parent": "project:p1"}},
        {"change": "deleted", "was": {"object": "table:lake/sales/orders", "id": "8"}},
        {"change": "registered", "object": {"object": "project:p2"}},
        {
            "change": "changed",
            "object": {"object": "warehouse:lake", "parent": "project:p2"},
            "was": {"object": "warehouse:lake", "parent": "project:p1", "managedAccess": True},
        },
    ]
    again = json.loads(done("import", "changed.json", "--prune", "--format", "json"))
    assert again["changes"] == []


def test_a_large_import_is_written_in_chunks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "CHUNK", 3)
    printed = done("import", "world.json")
    assert [len(revision.changes) for revision in log()] == [3, 3, 1]
    assert facts_of().sequence == 3
    assert printed.endswith(f"revision {facts_of().revision()}\n")
    assert content(facts_of()) == content(load_world("world.json"))


def test_a_hundred_thousand_grants_are_imported(folder: Path) -> None:
    entries = [
        {"principal": f"user:oidc~u{n % 1000}", "privilege": "select", "object": f"table:lake/n{n % 100}/t{n}"}
        for n in range(100_000)
    ]
    (folder / "large.json").write_text(json.dumps({"grants": entries}))
    printed = done("import", "large.json")
    assert len(printed.splitlines()) == 23
    assert "  and 99,980 more\n100,000 grants added\n" in printed
    assert done("import", "large.json").startswith("nothing to change")


def test_an_interrupted_import_reports_its_progress(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "CHUNK", 3)
    write_steps = Writer.write_steps

    def failing(self: Writer, some: Any) -> Any:
        if self.facts.sequence == 2:
            raise Unavailable("the database is gone")
        return write_steps(self, some)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "write_steps", failing)
        said = refused("import", "world.json")
    assert "the database is gone; 6 changes are written, up to revision " in said
    assert facts_of().sequence == 2
    assert said.endswith(f"{facts_of().revision()}: import again for the rest\n")
    assert "1 grant added\n" in done("import", "world.json")


def test_an_import_replaces_the_seed_and_single_writes_keep_it(folder: Path) -> None:
    (folder / "seed.yaml").write_text(yaml.safe_dump({"objects": ["project:seeded"]}))
    (folder / "pdp.yaml").write_text('store: {url: "sqlite:///pdp.db", seed: seed.yaml}\n')
    listed = grants("export")
    assert "project:seeded" in listed.stdout
    assert "no database at" in listed.stderr
    done("import", "world.json")
    assert content(facts_of()) == content(load_world("world.json"))
    (folder / "pdp.db").unlink()
    done("add", *ALICE)
    assert [revision.actor.partition(":")[0] for revision in log()] == ["seed", "cli"]
    assert facts_of().is_registered(("project", ("seeded",)))


# --- the difference -----------------------------------------------------------------------------------------------


@given(worlds(), worlds())
def test_a_pruning_import_turns_any_facts_into_the_world(before: dict[str, Any], after: dict[str, Any]) -> None:
    facts, world = parse_world(before), read_world(after)
    added = facts.apply(1, import_changes(facts, world))
    assert content(added) >= {*world.grants}
    assert set(added.grants()) == {*facts.grants(), *world.grants}
    assert import_changes(added, world) == []
    exact = facts.apply(1, import_changes(facts, world, prune=True))
    assert content(exact) == content(world.facts())
    assert import_changes(exact, world, prune=True) == []


@given(worlds(), worlds())
def test_an_import_without_pruning_equals_writes_over_http(before: dict[str, Any], after: dict[str, Any]) -> None:
    facts, world = parse_world(before), read_world(after)
    rules, operator = Administration(), Actor("cli")
    changes = rules.edit_objects(facts, operator, ObjectEdits(put=world.objects))
    made = [*changes, *rules.edit_grants(facts.apply(0, changes), operator, GrantEdits(add=world.grants))]
    assert content(facts.apply(1, import_changes(facts, world))) == content(facts.apply(1, made))


@given(worlds(), worlds(), st.integers(1, 4))
def test_every_step_removes_before_it_adds(before: dict[str, Any], after: dict[str, Any], size: int) -> None:
    facts, world = parse_world(before), read_world(after)
    left, wanted, had = plan_import(facts, world, prune=True), set(world.grants), set(facts.grants())
    for start in range(0, len(left), size):
        facts = facts.apply(start + 1, remaining_changes(facts, left[start : start + size]))
        assert set(facts.grants()) <= wanted or set(facts.grants()) <= had
    assert content(facts) == content(world.facts())


def test_a_warehouse_stays_in_the_project_that_is_configured(folder: Path) -> None:
    (folder / "pdp.yaml").write_text('warehouses: {lake: {project: p2}}\nstore: {url: "sqlite:///pdp.db"}\n')
    assert refused("import", "world.json") == "pdp: warehouse:lake belongs to `p2` by configuration\n"
    assert log() == []
    with pytest.raises(InvalidArgument):
        import_changes(Facts.empty().with_projects({"lake": "p2"}), read_world(WORLD))


def test_concurrent_writes_are_neither_undone_nor_repeated(tmp_path: Path) -> None:
    some = [Grant(("table", ("w", "n", f"t{number}")), "select", "user:i~x") for number in range(4)]
    flag = ObjectPut(Object(("warehouse", ("w",)), managed=True))
    world = read_world({"objects": [{"object": "warehouse:w", "parent": "project:p"}]})
    with closing(open_store(f"sqlite:///{tmp_path}/pdp.db")) as store:
        writer = Writer(store, store.load(), "me")
        left = [*map(GrantAdded, some), *plan_import(writer.facts, world)]
        assert writer.write_steps(left[:1]) == [GrantAdded(some[0])]
        theirs: list[Change] = [GrantAdded(some[1]), GrantAdded(some[2]), flag]
        store.write("other", store.load(), lambda log: theirs)
        assert writer.write_steps(left[1:2]) == []
        assert writer.write_steps(left[2:3]) == []
        assert writer.write_steps(left[3:]) == [GrantAdded(some[3]), ObjectPut(Object(flag.object.key, "p", True))]
        assert writer.facts.sequence == 3
        assert writer.revision == str(store.load().revision())
        assert content(writer.facts) == content(store.load())
        store.write("other", store.load(), lambda log: [GrantRemoved(some[3])])
        assert writer.write(lambda facts: [GrantAdded(some[3])] if not facts.has(some[3]) else []) != []


# --- export -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.json", "out.yaml"])
def test_an_export_reads_back_to_the_same_bytes(folder: Path, name: str) -> None:
    done("import", "world.json")
    assert done("export", name) == ""
    (folder / "pdp.db").unlink()
    done("import", name)
    again = f"again-{name}"
    done("export", again)
    assert (folder / again).read_bytes() == (folder / name).read_bytes()
    assert content(facts_of()) == content(load_world("world.json"))
    assert sorted(path.name for path in folder.iterdir()) == sorted(["pdp.yaml", "world.json", "pdp.db", name, again])


def test_without_a_file_json_goes_to_stdout(folder: Path) -> None:
    done("import", "world.json")
    done("export", "out.json")
    assert done("export") == (folder / "out.json").read_text()
    assert json.loads(done("export"))["grants"][0] == WORLD["grants"][0]
    assert done("export", "-") == done("export")
    assert not (folder / "-").exists()


@given(worlds())
def test_export_and_import_restore_every_world(world: dict[str, Any]) -> None:
    facts = parse_world(world)
    for text, how in ((export(facts), {}), (export(facts, yaml=True), {"yaml": True})):
        imported = Facts.empty().apply(1, import_changes(Facts.empty(), read_world(yaml.safe_load(text))))
        assert content(imported) == content(facts)
        assert export(imported, **how) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_lines_are_printable_whatever_a_name_holds(name: str) -> None:
    entry = {"principal": f"user:i~{name}"}
    assert json.loads(entry_text(entry)) == entry
    assert yaml.safe_load(entry_text(entry, yaml=True)) == entry
    assert entry_text(entry).isprintable()
    assert entry_text(entry, yaml=True).isprintable()


def test_a_failed_export_keeps_the_old_file(folder: Path) -> None:
    done("import", "world.json")
    assert refused("export", "none/out.json") == "pdp: cannot write `none/out.json`: no such file or directory\n"
    assert refused("export", folder).startswith(f"pdp: cannot write `{folder}`: ")


def test_an_empty_store_exports_an_empty_world(folder: Path) -> None:
    done("export", "out.yaml")
    assert (
        json.loads(done("export")) == yaml.safe_load((folder / "out.yaml").read_text()) == {"objects": [], "grants": []}
    )


# --- list ---------------------------------------------------------------------------------------------------------


def test_a_list_has_columns_and_flags(folder: Path) -> None:
    done("import", "world.json")
    assert done("list") == (
        "OBJECT                   PRIVILEGE  PRINCIPAL        ID  FLAGS\n"
        "namespace:lake/sales     select     role:analyst\n"
        "role:analyst             assignee   user:oidc~alice      unknown_principal\n"
        "table:lake/sales/orders  ownership  user:oidc~dave   7   unknown_principal,orphaned\n"
    )
    lines = [json.loads(line) for line in done("list", "--format", "json").splitlines()]
    flags = [None, ["unknown_principal"], ["unknown_principal", "orphaned"]]
    assert [line.pop("flags", None) for line in lines] == flags
    assert lines == WORLD["grants"]


@pytest.mark.parametrize(
    ("narrowed", "shown"),
    [
        (["--object", "namespace:lake/sales"], [0]),
        (["--object", "namespace:lake/sales", "--below"], [0, 2]),
        (["--object", "warehouse:lake", "--below", "--principal", "user:oidc~dave"], [2]),
        (["--principal", "user:oidc~alice"], [1]),
        (["--privilege", "ownership"], [2]),
        (["--privilege", "ownership", "--principal", "role:analyst"], []),
    ],
)
def test_a_list_is_narrowed(folder: Path, narrowed: list[str], shown: list[int]) -> None:
    done("import", "world.json")
    lines = done("list", "--format", "json", *narrowed).splitlines()
    assert [json.loads(line)["object"] for line in lines] == [WORLD["grants"][at]["object"] for at in shown]
    if not shown:
        assert done("list", *narrowed) == "no grants\n"


def test_hostile_names_do_not_reach_the_terminal(folder: Path) -> None:
    table = "table:lake/sales/\u202e\U000e0001"
    assert done("add", "user:oidc~\u202eeve", "select", table).isascii()
    done("import", "world.json")
    outputs = [
        done("list"),
        done("list", "--format", "json"),
        done("export"),
        done("import", "world.json", "--prune", "--dry-run"),
    ]
    done("export", "out.yaml")
    for text in (*outputs, (folder / "out.yaml").read_text()):
        assert all(line.isprintable() for line in text.splitlines())
        assert "\\u202e" in text
    before = content(facts_of())
    (folder / "pdp.db").unlink()
    done("import", "out.yaml")
    assert content(facts_of()) == before
    for hostile in ("user:oidc~a\x1b[31m", "user:oidc~a\u2028b", "a\x1b[31m\u202e"):
        assert refused("add", hostile, "select", "warehouse:lake").removesuffix("\n").isprintable()
    for hostile in ("table:lake/n/%1B]0;x", "table:lake/n/%E2%80%A8", "table:\x1b[31m"):
        assert refused("add", "role:r", "select", hostile).removesuffix("\n").isprintable()


# --- add, remove, move --------------------------------------------------------------------------------------------


def test_a_grant_is_added_once_and_removed_once(folder: Path) -> None:
    said = "select on table:lake/sales/orders for user:oidc~alice"
    odd = "unknown_principal: nobody registered `user:oidc~alice`\n"
    assert done("add", *ALICE) == f"added: {said}\n{odd}revision {facts_of().revision()}\n"
    assert done("add", *ALICE) == f"there already: {said}\n{odd}revision {facts_of().revision()}\n"
    assert done("remove", *ALICE, "--id", "7").startswith("not there: select on table:lake/sales/orders (id 7) for ")
    assert done("remove", *ALICE) == f"removed: {said}\nrevision {facts_of().revision()}\n"
    assert done("remove", *ALICE) == f"not there: {said}\nrevision {facts_of().revision()}\n"
    assert [len(revision.changes) for revision in log()] == [1, 1]


def test_a_grant_for_another_id_is_reported_as_orphaned(folder: Path) -> None:
    done("import", "world.json")
    assert "orphaned: `table:lake/sales/orders` is registered with another id" in done("add", *ALICE, "--id", "7")
    assert "orphaned" not in done("add", *ALICE, "--id", "8")


def test_grants_follow_a_moved_object(folder: Path) -> None:
    done("import", "world.json")
    move = ("move", "namespace:lake/sales", "namespace:lake/old/sales")
    said = "namespace:lake/sales to namespace:lake/old/sales, with 2 grants and 1 registered object\n"
    assert f"would move {said}" in done(*move, "--dry-run")
    assert len(log()) == 1
    assert f"moved {said}" in done(*move)
    assert [json.loads(line)["object"] for line in done("list", "--format", "json").splitlines()] == [
        "namespace:lake/old/sales",
        "role:analyst",
        "table:lake/old/sales/orders",
    ]
    assert "nothing to move" in done("move", "namespace:lake/sales", "namespace:lake/new")
    assert len(log()) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "none.json"], ["none.json", "cannot read"]),
        (["import", "broken.json"], ["broken.json:1:", "not JSON"]),
        (["import", "wrong.yaml"], ["wrong.yaml:2:", "`selct`"]),
        (["add", "user:oidc~a", "selct", "table:lake/n/t"], ["privilege: ", "`selct`", "table"]),
        (["add", "user:oidc~a", "create", "table:lake/n/t"], ["`create` cannot be granted on a table"]),
        (["add", "alice", "select", "table:lake/n/t"], ["principal: ", "`alice`"]),
        (["add", "anonymous", "select", "table:lake/n/t"], ["`anonymous`"]),
        (["add", "user:oidc~a", "select", "table:lake//t"], ["object: ", "`table:lake//t`"]),
        (["add", "user:oidc~a", "select", "tabel:lake/t"], ["object: ", "`tabel:lake/t`"]),
        (["add", "user:oidc~a", "select", "table:lake/n/t@main"], ["names a ref"]),
        (["add", "user:oidc~a", "select", "table:lake/n/t", "--id", "a b"], ["`a b`"]),
        (["add", "role:r", "assignee", "role:r"], ["`role:r` cannot contain itself"]),
        (["remove", "user:oidc~a", "selct", "server"], ["`selct`"]),
        (["move", "namespace:lake/a", "namespace:lake/a/b"], ["below itself"]),
        (["move", "namespace:lake/a", "namespace:hill/a"], ["another warehouse"]),
        (["move", "table:lake/a/t", "view:lake/a/t"], ["that is a view"]),
        (["move", "lake", "view:lake/a/t"], ["from: ", "`lake`"]),
        (["list", "--object", "nothing"], ["object: ", "`nothing`"]),
        (["list", "--principal", "alice"], ["`alice`"]),
        (["list", "--privilege", "selct"], ["`selct`", "select"]),
        (["list", "--below"], ["--below needs an --object"]),
        (["list", "-c", "none.yaml"], ["none.yaml"]),
        (["list", "--set", "store.url=sqlite:///garbage.db"], ["garbage.db", "no sound SQLite file"]),
        (["add", *ALICE, "--set", "store.url=sqlite:///none/pdp.db"], ["none/pdp.db", "unable to open"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_2(folder: Path, arguments: list[str], words: list[str]) -> None:
    (folder / "broken.json").write_text('{"grants": [')
    (folder / "wrong.yaml").write_text("grants:\n- {principal: role:a, privilege: selct, object: server}\n")
    (folder / "garbage.db").write_text("this is no database, but it is long enough to be read as one\n" * 40)
    (folder / "garbage.db").chmod(0o600)  # other modes are corrected, with a line in the log
    said = refused(*arguments)
    for word in words:
        assert word in said


def test_a_world_file_is_read_and_never_written(folder: Path) -> None:
    (folder / "pdp.yaml").write_text('store: {url: "file:world.json"}\n')
    before = (folder / "world.json").read_bytes()
    assert len(done("list").splitlines()) == 4
    assert json.loads(done("export"))["grants"] == WORLD["grants"]
    for arguments in (
        ["import", "world.json"],
        ["import", "world.json", "--dry-run"],
        ["add", *ALICE],
        ["remove", *ALICE],
        ["move", "namespace:lake/sales", "namespace:lake/x"],
    ):
        assert "the store is the world file `world.json`, which takes no writes" in refused(*arguments)
    assert (folder / "world.json").read_bytes() == before


@pytest.mark.parametrize("command", [["list"], ["export"], ["add", *ALICE], ["import", "world.json"]])
def test_an_unreachable_database_is_one_line_without_its_password(folder: Path, command: list[str]) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"postgresql://pdp:hush@127.0.0.1:{unheard.getsockname()[1]}/pdp"
        said = refused(*command, "--set", f"store.url={url}")
    assert "cannot be used now" in said
    assert "hush" not in said


# --- with a service, and on PostgreSQL ----------------------------------------------------------------------------


def allowed(url: str) -> bool:
    check = {"principal": ALICE[0], "action": "read_data", "resource": ALICE[2]}
    verdict: bool = fetch(url, {"checks": [check]}).json()["decisions"][0]["allowed"]
    return verdict


@pytest.mark.process
def test_a_running_service_follows(folder: Path) -> None:
    with serve_process(folder, "-c", "pdp.yaml") as service:
        url = service.url("/v1/check")
        assert not allowed(url)
        for command, wanted in (("add", True), ("remove", False)):
            done(command, *ALICE)
            until = time.monotonic() + 1
            while allowed(url) != wanted and time.monotonic() < until:
                time.sleep(0.02)
            assert allowed(url) == wanted
        assert service.terminate() == 0


@pytest.mark.process
def test_the_command_itself(folder: Path) -> None:
    ended = run_pdp("grants", "import", "world.json", cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "3 grants added" in ended.stdout
    for arguments in (["--help"], ["import", "--help"]):
        ended = run_pdp("grants", *arguments, cwd=folder)
        assert (ended.returncode, ended.stderr) == (0, "")
    ended = run_pdp("grants", "ad", cwd=folder)
    assert ended.returncode == 2


def test_a_round_trip_on_postgresql(folder: Path, database: str) -> None:
    (folder / "pdp.yaml").write_text(f"store: {{url: '{database}'}}\n")
    assert "3 grants added, 4 objects registered\n" in done("import", "world.json")
    assert done("import", "world.json", "--prune").startswith("nothing to change")
    assert done("add", *ALICE).startswith("added: ")
    moved = done("move", "namespace:lake/sales", "namespace:lake/old")
    assert moved.endswith(f"revision {facts_of(database).revision()}\n")
    assert facts_of(database).sequence == 3
    assert len(done("list", "--object", "namespace:lake/old", "--below").splitlines()) == 4
    done("export", "out.json")
    done("import", "out.json", "--prune", "--set", "store.url=sqlite:///pdp.db")
    assert done("export", "--set", "store.url=sqlite:///pdp.db") == (folder / "out.json").read_text()
    assert [revision.actor.partition(":")[0] for revision in log(database)] == ["cli"] * 3
