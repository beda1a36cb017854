"""Trino's operations in the plainest Python, written from the vocabulary: what a body of the OPA plugin must be told."""

from typing import Any

from spec.row_access import filter_of, mask_of
from spec.verdicts import RightsSpec

Named = dict[str, Any]
ON_CATALOG = {"AccessCatalog": "use", "FilterCatalogs": "use", "ShowSchemas": "list_namespaces"}
ON_SCHEMA = {"FilterSchemas": "include_in_list", "ShowTables": "list_tables", "ShowFunctions": "list_tables"}
ON_SCHEMA |= {"ShowCreateSchema": "get_metadata", "DropSchema": "delete", "SetSchemaAuthorization": "change_ownership"}
ON_EITHER = {"FilterTables": "include_in_list", "SelectFromColumns": "read_data"}
ON_EITHER |= dict.fromkeys(("FilterColumns", "ShowColumns", "ShowCreateTable"), "get_metadata")
ON_EITHER |= {"CreateViewWithSelectFromColumns": "read_data"}
WRITES = ["InsertIntoTable", "DeleteFromTable", "TruncateTable", "UpdateTableColumns", "ExecuteTableProcedure"]
COMMITS = [
    "AddColumn",
    "AlterColumn",
    "DropColumn",
    "RenameColumn",
    "SetColumnComment",
    "SetTableComment",
    "SetTableProperties",
]
ON_TABLE = dict.fromkeys(WRITES, "write_data") | dict.fromkeys(COMMITS, "commit")
ON_TABLE |= {"DropTable": "drop", "SetTableAuthorization": "change_ownership"}
ON_VIEW = dict.fromkeys(("SetViewComment", "RefreshMaterializedView", "SetMaterializedViewProperties"), "commit")
ON_VIEW |= {"SetMaterializedViewComment": "commit"}
ON_VIEW |= {"DropView": "drop", "DropMaterializedView": "drop", "SetViewAuthorization": "change_ownership"}
STORING = ["CreateMaterializedView", "RefreshMaterializedView"]
CREATES = {"CreateTable": "table", "CreateView": "view", "CreateMaterializedView": "view", "CreateSchema": "namespace"}
RENAMES = {"RenameTable": "table", "RenameView": "view", "RenameMaterializedView": "view", "RenameSchema": "namespace"}
PROCEDURES = [
    "OPTIMIZE",
    "OPTIMIZE_MANIFESTS",
    "EXPIRE_SNAPSHOTS",
    "DROP_EXTENDED_STATS",
    "REMOVE_ORPHAN_FILES",
]
ABOUT_TABLE = ["properties", "history", "metadata_log_entries", "snapshots", "refs"]
VALUES = ["partitions", "files", "entries", "manifests", "all_partitions", "all_files", "all_entries", "all_manifests"]
VALUES += ["materialized_view_storage"]
LISTED = {"information_schema": ["columns", "schemata", "tables", "views"], "system": ["iceberg_tables"]}
OPEN = {"information_schema": LISTED["information_schema"], "runtime": ["queries"]}
OPEN["metadata"] = ["analyze_properties", "catalogs", "column_properties", "materialized_views", "schema_properties"]
OPEN["metadata"] += ["table_comments", "table_properties"]


class Spec:
    """One user before one policy set."""

    def __init__(self, policies: dict[str, Any], user: str, groups: list[str]) -> None:
        self.trino, self.user = policies["config"]["trino"], user
        self.refs = {name: found["default_ref"] for name, found in policies["config"]["warehouses"].items()}
        roles = [role for group in groups if (role := self.trino.get("groups", {}).get(group))]
        self.rights, self.row_access = RightsSpec(policies, user, roles), policies.get("row_access", {})
        self.members = {f"user:{user}", *(f"role:{role}" for role in roles), *(f"group:{group}" for group in groups)}
        self.admin = user in self.trino.get("admin_users", [])

    def allowed(self, op: str, resource: Named, target: Named | None = None, grantee: Named | None = None) -> bool:
        """Tell whether the operation is allowed on one resource."""
        if op == "SetViewAuthorization" and not (grantee and self._may_be_given(grantee)):
            return False
        if op in ("ExecuteQuery", "ReadSystemInformation"):
            allow = self.trino.get("execute_query", {}).get("allow", ["*"])
            return "*" in allow or self.user in allow
        if op in ("WriteSystemInformation", "CreateCatalog", "DropCatalog"):
            return self.admin
        if op.endswith("QueryOwnedBy"):
            return self.admin or resource["user"]["user"] == self.user
        if op == "ImpersonateUser":
            return resource["user"]["user"] in self.trino.get("impersonation", {}).get(self.user, [])
        if op.endswith("SessionProperty"):
            name = ".".join(next(iter(resource.values())).values())
            return name not in self.trino.get("session_properties", {}).get("deny", [])
        if "function" in resource and "table" not in resource:
            return self._function(op, *resource["function"].values())
        catalog, *path = names(resource)
        mapped = self.trino["catalogs"].get(catalog)
        if catalog == "system":
            return self.admin or not path or path[0] == "jdbc" or path[-1] in OPEN.get(path[0], [])
        if mapped is None:
            return bool(self.trino.get("unmanaged_catalogs") == "allow")
        at = mapped["warehouse"], mapped.get("ref") or self.refs[mapped["warehouse"]]
        if path and path[0] in LISTED:
            return (len(path) == 1 or path[1] in LISTED[path[0]]) and self.may("warehouse", "get_config", (*at, ""))
        return self._managed(op, at, ".".join(path), resource, ".".join(names(target)[1:]) if target else "")

    def _may_be_given(self, grantee: Named) -> bool:
        others = self.trino.get("impersonation", {}).get(self.user, [])
        return grantee["type"] == "USER" and grantee["name"] in [self.user, *others]

    def filter(self, resource: Named) -> str | None:
        """Return the row filter of a table, if any."""
        return filter_of(self.row_access, self._place(resource), self.members)

    def mask(self, resource: Named) -> str | None:
        """Return the mask of a column, if any."""
        column = resource["column"]
        name = column["columnName"], column["columnType"]
        return mask_of(self.row_access, self._place(resource), name, self.members)

    def may(self, *asked: Any, **more: Any) -> bool:
        return self.rights.may(*asked, **more) is True

    def _place(self, resource: Named) -> str:
        catalog, *path = names(resource)
        return ".".join([self.trino["catalogs"].get(catalog, {"warehouse": ""})["warehouse"], *path])

    def _managed(self, op: str, at: tuple[str, str], path: str, resource: Named, to: str) -> bool:
        where, (base, _, suffix) = (*at, path), path.rpartition("$")
        procedure = resource.get("function", {}).get("functionName", "OPTIMIZE").upper()
        if op in ON_CATALOG:
            return self.may("warehouse", ON_CATALOG[op], where)
        if op in ON_SCHEMA:
            dropped = ["CATALOG_DROP_ENTITY"] if op == "DropSchema" else []
            allowed = self.may("namespace", ON_SCHEMA[op], where, actions=dropped)
            return allowed and (op != "DropSchema" or self._may_drop_content(at, path, "CATALOG_DROP_ENTITY"))
        if op in STORING and self._restricts(at[0]):
            return False
        if op in ON_EITHER:
            read, delegated = ON_EITHER[op], op.startswith("CreateView")
            kept = base and suffix in ABOUT_TABLE + VALUES
            if kept:
                where, read = (*at, base), "read_data" if suffix in VALUES and read == "read_data" else "get_metadata"
            both = (("table", read), ("view", "select" if read == "read_data" else read))
            forms = [self.rights.may(*what, where, delegated=delegated) for what in both]
            is_table = kept and suffix != "materialized_view_storage"
            return None not in forms and True in (forms[:1] if is_table else forms)
        if op in ("SetColumnComment", "ExecuteTableProcedure"):
            known = {type for type, named in self._known(at[0]) if named == path}
            may_be_view = "view" in known or (op == "SetColumnComment" and "table" not in known)
            either = [("table", ON_TABLE[op]), ("view", "commit")][: 1 + may_be_view]
            forms = [self.rights.may(*what, where, actions=["CATALOG_UPDATE_ENTITY"]) for what in either]
            return procedure in PROCEDURES and None not in forms and True in forms
        if op in ON_TABLE or op in ON_VIEW:
            on, action = ("table", ON_TABLE[op]) if op in ON_TABLE else ("view", ON_VIEW[op])
            also = ["CATALOG_DROP_ENTITY" if action == "drop" else "CATALOG_UPDATE_ENTITY"]
            return procedure in PROCEDURES and self.may(on, action, where, actions=also)
        if op in CREATES:
            created = self._create(at, CREATES[op], path, "CATALOG_CREATE_ENTITY")
            return created and (op == "CreateSchema" or self._may_replace(at, path))
        kind = RENAMES[op]
        source = self.may(kind, "move" if kind == "namespace" else "rename", where, to=to)
        below = kind != "namespace" or self._may_drop_content(at, path, "CATALOG_RENAME_ENTITY_FROM")
        return source and below and self._create(at, kind, to, "CATALOG_RENAME_ENTITY_TO")

    def _restricts(self, warehouse: str) -> bool:
        modes = [at.get("materialized_views") for at in self.trino["catalogs"].values() if at["warehouse"] == warehouse]
        return bool(self._covered(warehouse)) and set(modes) != {"allowed"}

    def _known(self, warehouse: str) -> set[tuple[str, str]]:
        world = self.rights.world
        named = [one["object"] for one in [*world["objects"], *world["grants"]]]
        found = {(type, path.partition("/")) for type, _, path in (name.partition(":") for name in named)}
        return {(type, rest.replace("/", ".")) for type, (first, _, rest) in found if first == warehouse and rest}

    def _covered(self, warehouse: str) -> set[str]:
        rows = [*self.row_access.get("policies", []), *self.row_access.get("masks", [])]
        tables = [row["table"].partition(".") for row in rows]
        return {path for first, _, path in tables if first == warehouse}

    def _may_drop(self, at: tuple[str, str], path: str, also: str, types: list[str] | None = None) -> bool:
        """Tell whether everything with a path may be dropped; a table or view where nobody knows which."""
        where = (*at, path)
        if types:
            drops = [(type, "delete" if type == "namespace" else "drop") for type in types]
            return all(self.may(type, action, where, actions=[also]) for type, action in drops)
        forms = [self.rights.may(type, "drop", where, actions=[also]) for type in ("table", "view")]
        return None not in forms and (True in forms or path not in self._covered(at[0]))

    def _may_replace(self, at: tuple[str, str], path: str) -> bool:
        table = f"{at[0]}.{path}"
        types = sorted(type for type, known in self._known(at[0]) if known == path)
        if types and mask_of(self.row_access, table, ("$path", "varchar"), self.members):
            return False
        return self._may_drop(at, path, "CATALOG_DROP_ENTITY", types)

    def _may_drop_content(self, at: tuple[str, str], path: str, also: str) -> bool:
        known = {(type, below) for type, below in self._known(at[0]) if below.startswith(f"{path}.")}
        covered = {below for below in self._covered(at[0]) if below.startswith(f"{path}.")} - {b for _, b in known}
        return all(self._may_drop(at, below, also, [type]) for type, below in known) and all(
            self._may_drop(at, below, also) for below in covered
        )

    def _create(self, at: tuple[str, str], kind: str, path: str, also: str) -> bool:
        parent = path.rpartition(".")[0]
        within = "namespace" if parent else "warehouse"
        return self.may(within, f"create_{kind}", (*at, parent), new=path, actions=[also])

    def _function(self, op: str, catalog: str, schema: str, name: str) -> bool:
        settings, mapped = self.trino.get("functions", {}), self.trino["catalogs"].get(catalog)
        if op == "ExecuteProcedure":
            return self.admin or f"{catalog}.{schema}.{name}" in self.trino.get("procedures", {}).get("allow", [])
        if op in ("CreateFunction", "DropFunction"):
            action = "update_properties"
        elif catalog in settings.get("builtin_catalogs", []):
            return True
        else:
            action = "get_metadata"
        if mapped is None:
            return bool(self.trino.get("unmanaged_catalogs") == "allow")
        if schema == "system":
            return f"{catalog}.{schema}.{name}" in settings.get("allow", [])
        ref = mapped.get("ref") or self.refs[mapped["warehouse"]]
        return self.may("namespace", action, (mapped["warehouse"], ref, schema), delegated=op.startswith("CreateView"))


def names(resource: Named) -> list[str]:
    """Catalog, schema parts and table of what is named, as far as it is."""
    named = next(named for kind, named in resource.items() if kind != "function")
    schema = named.get("schemaName", "")
    parts = [named.get("catalogName", named.get("name")), *(schema.split(".") if schema else [])]
    return [*parts, named["tableName"]] if "tableName" in named else parts
