from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckRequest(_message.Message):
    __slots__ = ("checks", "consistency", "explain", "answer")
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[Check]
    consistency: Consistency
    explain: bool
    answer: str
    def __init__(self, checks: _Optional[_Iterable[_Union[Check, _Mapping]]] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ..., explain: _Optional[bool] = ..., answer: _Optional[str] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("decisions", "revision", "decision_id", "allowed", "size", "rejected", "errors")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    revision: str
    decision_id: str
    allowed: _containers.RepeatedScalarFieldContainer[int]
    size: int
    rejected: _containers.RepeatedCompositeFieldContainer[RejectedPositions]
    errors: _containers.RepeatedCompositeFieldContainer[RaisedPositions]
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ..., allowed: _Optional[_Iterable[int]] = ..., size: _Optional[int] = ..., rejected: _Optional[_Iterable[_Union[RejectedPositions, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[RaisedPositions, _Mapping]]] = ...) -> None: ...

class RejectedPositions(_message.Message):
    __slots__ = ("at", "error")
    AT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    at: _containers.RepeatedScalarFieldContainer[int]
    error: Error
    def __init__(self, at: _Optional[_Iterable[int]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class RaisedPositions(_message.Message):
    __slots__ = ("at", "errors")
    AT_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    at: _containers.RepeatedScalarFieldContainer[int]
    errors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, at: _Optional[_Iterable[int]] = ..., errors: _Optional[_Iterable[str]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("principal", "action", "resource", "delegated", "acting_role", "context", "resources")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    action: str
    resource: Resource
    delegated: bool
    acting_role: str
    context: Context
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., action: _Optional[str] = ..., resource: _Optional[_Union[Resource, _Mapping]] = ..., delegated: _Optional[bool] = ..., acting_role: _Optional[str] = ..., context: _Optional[_Union[Context, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Principal(_message.Message):
    __slots__ = ("id", "roles", "groups", "attributes")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    attributes: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., attributes: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("reference", "type", "warehouse", "path", "name", "ref", "ref_type", "content_type", "properties", "id")
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    REF_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    reference: str
    type: str
    warehouse: str
    path: _containers.RepeatedScalarFieldContainer[str]
    name: str
    ref: str
    ref_type: str
    content_type: str
    properties: _struct_pb2.Struct
    id: str
    def __init__(self, reference: _Optional[str] = ..., type: _Optional[str] = ..., warehouse: _Optional[str] = ..., path: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., ref: _Optional[str] = ..., ref_type: _Optional[str] = ..., content_type: _Optional[str] = ..., properties: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., id: _Optional[str] = ...) -> None: ...

class Context(_message.Message):
    __slots__ = ("api", "actions", "arguments", "query_id")
    API_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    api: Api
    actions: _containers.RepeatedScalarFieldContainer[str]
    arguments: _struct_pb2.Struct
    query_id: str
    def __init__(self, api: _Optional[_Union[Api, _Mapping]] = ..., actions: _Optional[_Iterable[str]] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., query_id: _Optional[str] = ...) -> None: ...

class Api(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Consistency(_message.Message):
    __slots__ = ("minimize_latency", "full", "at_least")
    MINIMIZE_LATENCY_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    minimize_latency: bool
    full: bool
    at_least: str
    def __init__(self, minimize_latency: _Optional[bool] = ..., full: _Optional[bool] = ..., at_least: _Optional[str] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("allowed", "by", "errors", "cached", "trace", "error")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    by: _containers.RepeatedScalarFieldContainer[str]
    errors: _containers.RepeatedScalarFieldContainer[str]
    cached: bool
    trace: Trace
    error: Error
    def __init__(self, allowed: _Optional[bool] = ..., by: _Optional[_Iterable[str]] = ..., errors: _Optional[_Iterable[str]] = ..., cached: _Optional[bool] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("what", "outcome", "why", "parts")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    what: str
    outcome: str
    why: str
    parts: _containers.RepeatedCompositeFieldContainer[Trace]
    def __init__(self, what: _Optional[str] = ..., outcome: _Optional[str] = ..., why: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CheckLoadRequest(_message.Message):
    __slots__ = ("principal", "acting_role", "target", "action", "referenced_by", "view_names", "views", "caller", "metadata")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_BY_FIELD_NUMBER: _ClassVar[int]
    VIEW_NAMES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    acting_role: str
    target: Resource
    action: str
    referenced_by: str
    view_names: ViewNames
    views: _containers.RepeatedCompositeFieldContainer[View]
    caller: TokenIdentity
    metadata: str
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., acting_role: _Optional[str] = ..., target: _Optional[_Union[Resource, _Mapping]] = ..., action: _Optional[str] = ..., referenced_by: _Optional[str] = ..., view_names: _Optional[_Union[ViewNames, _Mapping]] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., caller: _Optional[_Union[TokenIdentity, _Mapping]] = ..., metadata: _Optional[str] = ...) -> None: ...

class ViewNames(_message.Message):
    __slots__ = ("views",)
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[ViewName]
    def __init__(self, views: _Optional[_Iterable[_Union[ViewName, _Mapping]]] = ...) -> None: ...

class ViewName(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parts: _Optional[_Iterable[str]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("resource", "properties")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    properties: _struct_pb2.Struct
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., properties: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class TokenIdentity(_message.Message):
    __slots__ = ("idp", "subject", "audiences")
    IDP_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    AUDIENCES_FIELD_NUMBER: _ClassVar[int]
    idp: str
    subject: str
    audiences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, idp: _Optional[str] = ..., subject: _Optional[str] = ..., audiences: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckLoadResponse(_message.Message):
    __slots__ = ("allowed", "by", "errors", "storage_access", "referenced_by_used", "steps", "revision", "decision_id", "error", "read_restrictions")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_ACCESS_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_BY_USED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    READ_RESTRICTIONS_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    by: _containers.RepeatedScalarFieldContainer[str]
    errors: _containers.RepeatedScalarFieldContainer[str]
    storage_access: str
    referenced_by_used: bool
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    revision: str
    decision_id: str
    error: Error
    read_restrictions: str
    def __init__(self, allowed: _Optional[bool] = ..., by: _Optional[_Iterable[str]] = ..., errors: _Optional[_Iterable[str]] = ..., storage_access: _Optional[str] = ..., referenced_by_used: _Optional[bool] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., read_restrictions: _Optional[str] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("resource", "as_principal", "delegated", "action", "allowed", "by")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    AS_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    resource: str
    as_principal: str
    delegated: bool
    action: str
    allowed: bool
    by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource: _Optional[str] = ..., as_principal: _Optional[str] = ..., delegated: _Optional[bool] = ..., action: _Optional[str] = ..., allowed: _Optional[bool] = ..., by: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckViewCommitRequest(_message.Message):
    __slots__ = ("principal", "acting_role", "view", "operation", "set", "remove", "caller")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    acting_role: str
    view: Resource
    operation: str
    set: _struct_pb2.Struct
    remove: _containers.RepeatedScalarFieldContainer[str]
    caller: TokenIdentity
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., acting_role: _Optional[str] = ..., view: _Optional[_Union[Resource, _Mapping]] = ..., operation: _Optional[str] = ..., set: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., remove: _Optional[_Iterable[str]] = ..., caller: _Optional[_Union[TokenIdentity, _Mapping]] = ...) -> None: ...

class CheckViewCommitResponse(_message.Message):
    __slots__ = ("allowed", "by", "errors", "steps", "revision", "decision_id", "error")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    by: _containers.RepeatedScalarFieldContainer[str]
    errors: _containers.RepeatedScalarFieldContainer[str]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    revision: str
    decision_id: str
    error: Error
    def __init__(self, allowed: _Optional[bool] = ..., by: _Optional[_Iterable[str]] = ..., errors: _Optional[_Iterable[str]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("principal", "action", "type", "container", "acting_role", "page_size", "page_token", "consistency")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    action: str
    type: str
    container: str
    acting_role: str
    page_size: int
    page_token: str
    consistency: Consistency
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., action: _Optional[str] = ..., type: _Optional[str] = ..., container: _Optional[str] = ..., acting_role: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("objects", "next_page_token", "revision")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    revision: str
    def __init__(self, objects: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class SqlCatalog(_message.Message):
    __slots__ = ("default", "tables", "views")
    class Columns(_message.Message):
        __slots__ = ("columns",)
        class ColumnsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        COLUMNS_FIELD_NUMBER: _ClassVar[int]
        columns: _containers.ScalarMap[str, str]
        def __init__(self, columns: _Optional[_Mapping[str, str]] = ...) -> None: ...
    class SqlView(_message.Message):
        __slots__ = ("sql", "columns", "dialect", "owner")
        SQL_FIELD_NUMBER: _ClassVar[int]
        COLUMNS_FIELD_NUMBER: _ClassVar[int]
        DIALECT_FIELD_NUMBER: _ClassVar[int]
        OWNER_FIELD_NUMBER: _ClassVar[int]
        sql: str
        columns: _containers.RepeatedScalarFieldContainer[str]
        dialect: str
        owner: str
        def __init__(self, sql: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., dialect: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...
    class TablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SqlCatalog.Columns
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SqlCatalog.Columns, _Mapping]] = ...) -> None: ...
    class ViewsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SqlCatalog.SqlView
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SqlCatalog.SqlView, _Mapping]] = ...) -> None: ...
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    default: _containers.RepeatedScalarFieldContainer[str]
    tables: _containers.MessageMap[str, SqlCatalog.Columns]
    views: _containers.MessageMap[str, SqlCatalog.SqlView]
    def __init__(self, default: _Optional[_Iterable[str]] = ..., tables: _Optional[_Mapping[str, SqlCatalog.Columns]] = ..., views: _Optional[_Mapping[str, SqlCatalog.SqlView]] = ...) -> None: ...

class RewriteRequest(_message.Message):
    __slots__ = ("sql", "dialect", "principal", "acting_role", "catalog", "consistency")
    SQL_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    sql: str
    dialect: str
    principal: Principal
    acting_role: str
    catalog: SqlCatalog
    consistency: Consistency
    def __init__(self, sql: _Optional[str] = ..., dialect: _Optional[str] = ..., principal: _Optional[_Union[Principal, _Mapping]] = ..., acting_role: _Optional[str] = ..., catalog: _Optional[_Union[SqlCatalog, _Mapping]] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class RewriteResponse(_message.Message):
    __slots__ = ("sql", "changed", "revision", "decision_id", "operation", "warnings")
    SQL_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    sql: str
    changed: bool
    revision: str
    decision_id: str
    operation: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sql: _Optional[str] = ..., changed: _Optional[bool] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ..., operation: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckScopesRequest(_message.Message):
    __slots__ = ("current_user", "scopes")
    CURRENT_USER_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    current_user: _struct_pb2.Struct
    scopes: _struct_pb2.Struct
    def __init__(self, current_user: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., scopes: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class CheckScopesResponse(_message.Message):
    __slots__ = ("allowed",)
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    def __init__(self, allowed: _Optional[bool] = ...) -> None: ...

class RowFilterRequest(_message.Message):
    __slots__ = ("resource", "dialect", "principal", "acting_role", "columns", "catalog", "consistency")
    class Column(_message.Message):
        __slots__ = ("name", "type")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        name: str
        type: str
        def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    dialect: str
    principal: Principal
    acting_role: str
    columns: _containers.RepeatedCompositeFieldContainer[RowFilterRequest.Column]
    catalog: SqlCatalog
    consistency: Consistency
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., dialect: _Optional[str] = ..., principal: _Optional[_Union[Principal, _Mapping]] = ..., acting_role: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[RowFilterRequest.Column, _Mapping]]] = ..., catalog: _Optional[_Union[SqlCatalog, _Mapping]] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class SqlExpression(_message.Message):
    __slots__ = ("expression", "identity")
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    expression: str
    identity: str
    def __init__(self, expression: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...

class RowFilterResponse(_message.Message):
    __slots__ = ("row_filter", "column_masks", "revision", "decision_id")
    class Mask(_message.Message):
        __slots__ = ("column", "expression", "identity")
        COLUMN_FIELD_NUMBER: _ClassVar[int]
        EXPRESSION_FIELD_NUMBER: _ClassVar[int]
        IDENTITY_FIELD_NUMBER: _ClassVar[int]
        column: str
        expression: str
        identity: str
        def __init__(self, column: _Optional[str] = ..., expression: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...
    ROW_FILTER_FIELD_NUMBER: _ClassVar[int]
    COLUMN_MASKS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    row_filter: SqlExpression
    column_masks: _containers.RepeatedCompositeFieldContainer[RowFilterResponse.Mask]
    revision: str
    decision_id: str
    def __init__(self, row_filter: _Optional[_Union[SqlExpression, _Mapping]] = ..., column_masks: _Optional[_Iterable[_Union[RowFilterResponse.Mask, _Mapping]]] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("principal", "privilege", "object", "id", "flags")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    principal: str
    privilege: str
    object: str
    id: str
    flags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, principal: _Optional[str] = ..., privilege: _Optional[str] = ..., object: _Optional[str] = ..., id: _Optional[str] = ..., flags: _Optional[_Iterable[str]] = ...) -> None: ...

class Object(_message.Message):
    __slots__ = ("object", "parent", "managed_access", "id")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    MANAGED_ACCESS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    object: str
    parent: str
    managed_access: bool
    id: str
    def __init__(self, object: _Optional[str] = ..., parent: _Optional[str] = ..., managed_access: _Optional[bool] = ..., id: _Optional[str] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("to",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ..., **kwargs) -> None: ...

class Actor(_message.Message):
    __slots__ = ("principal", "acting_role")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    acting_role: str
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., acting_role: _Optional[str] = ...) -> None: ...

class WriteGrantsRequest(_message.Message):
    __slots__ = ("add", "remove", "actor")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedCompositeFieldContainer[Grant]
    remove: _containers.RepeatedCompositeFieldContainer[Grant]
    actor: Actor
    def __init__(self, add: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ...) -> None: ...

class WriteGrantsResponse(_message.Message):
    __slots__ = ("revision", "flagged")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FLAGGED_FIELD_NUMBER: _ClassVar[int]
    revision: str
    flagged: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, revision: _Optional[str] = ..., flagged: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class ListGrantsRequest(_message.Message):
    __slots__ = ("object", "below", "principal", "privilege", "actor", "page_size", "page_token", "consistency")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    object: str
    below: bool
    principal: str
    privilege: str
    actor: Actor
    page_size: int
    page_token: str
    consistency: Consistency
    def __init__(self, object: _Optional[str] = ..., below: _Optional[bool] = ..., principal: _Optional[str] = ..., privilege: _Optional[str] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class ListGrantsResponse(_message.Message):
    __slots__ = ("grants", "next_page_token", "revision")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    next_page_token: str
    revision: str
    def __init__(self, grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class WriteObjectsRequest(_message.Message):
    __slots__ = ("put", "delete", "move", "actor")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    put: _containers.RepeatedCompositeFieldContainer[Object]
    delete: _containers.RepeatedScalarFieldContainer[str]
    move: _containers.RepeatedCompositeFieldContainer[Move]
    actor: Actor
    def __init__(self, put: _Optional[_Iterable[_Union[Object, _Mapping]]] = ..., delete: _Optional[_Iterable[str]] = ..., move: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ...) -> None: ...

class WriteObjectsResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: str
    def __init__(self, revision: _Optional[str] = ...) -> None: ...

class AccessRequest(_message.Message):
    __slots__ = ("resource", "action", "actor", "page_size", "page_token", "consistency")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    action: str
    actor: Actor
    page_size: int
    page_token: str
    consistency: Consistency
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., action: _Optional[str] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class AccessResponse(_message.Message):
    __slots__ = ("principals", "next_page_token", "revision")
    class Access(_message.Message):
        __slots__ = ("principal", "by")
        PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
        BY_FIELD_NUMBER: _ClassVar[int]
        principal: str
        by: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, principal: _Optional[str] = ..., by: _Optional[_Iterable[str]] = ...) -> None: ...
    PRINCIPALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    principals: _containers.RepeatedCompositeFieldContainer[AccessResponse.Access]
    next_page_token: str
    revision: str
    def __init__(self, principals: _Optional[_Iterable[_Union[AccessResponse.Access, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class RowPolicy(_message.Message):
    __slots__ = ("id", "table", "grantees", "filter", "dialect", "column", "kind", "expression", "etag", "author", "created", "updated", "tombstone", "texts", "restrictive")
    class TextsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    GRANTEES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    EXCEPT_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    RESTRICTIVE_FIELD_NUMBER: _ClassVar[int]
    id: str
    table: str
    grantees: _containers.RepeatedScalarFieldContainer[str]
    filter: str
    dialect: str
    column: str
    kind: str
    expression: str
    etag: str
    author: str
    created: str
    updated: str
    tombstone: bool
    texts: _containers.ScalarMap[str, str]
    restrictive: bool
    def __init__(self, id: _Optional[str] = ..., table: _Optional[str] = ..., grantees: _Optional[_Iterable[str]] = ..., filter: _Optional[str] = ..., dialect: _Optional[str] = ..., column: _Optional[str] = ..., kind: _Optional[str] = ..., expression: _Optional[str] = ..., etag: _Optional[str] = ..., author: _Optional[str] = ..., created: _Optional[str] = ..., updated: _Optional[str] = ..., tombstone: _Optional[bool] = ..., texts: _Optional[_Mapping[str, str]] = ..., restrictive: _Optional[bool] = ..., **kwargs) -> None: ...

class ListRowPoliciesRequest(_message.Message):
    __slots__ = ("table", "masks", "actor", "page_size", "page_token", "consistency")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    table: str
    masks: bool
    actor: Actor
    page_size: int
    page_token: str
    consistency: Consistency
    def __init__(self, table: _Optional[str] = ..., masks: _Optional[bool] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class ListRowPoliciesResponse(_message.Message):
    __slots__ = ("policies", "next_page_token", "revision")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[RowPolicy]
    next_page_token: str
    revision: str
    def __init__(self, policies: _Optional[_Iterable[_Union[RowPolicy, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class GetRowPolicyRequest(_message.Message):
    __slots__ = ("table", "id", "column", "actor", "consistency")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    table: str
    id: str
    column: str
    actor: Actor
    consistency: Consistency
    def __init__(self, table: _Optional[str] = ..., id: _Optional[str] = ..., column: _Optional[str] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class GetRowPolicyResponse(_message.Message):
    __slots__ = ("policy", "revision")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    policy: RowPolicy
    revision: str
    def __init__(self, policy: _Optional[_Union[RowPolicy, _Mapping]] = ..., revision: _Optional[str] = ...) -> None: ...

class WriteRowPolicyRequest(_message.Message):
    __slots__ = ("policy", "update", "actor")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    policy: RowPolicy
    update: bool
    actor: Actor
    def __init__(self, policy: _Optional[_Union[RowPolicy, _Mapping]] = ..., update: _Optional[bool] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ...) -> None: ...

class WriteRowPolicyResponse(_message.Message):
    __slots__ = ("policy", "revision", "warnings")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    policy: RowPolicy
    revision: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, policy: _Optional[_Union[RowPolicy, _Mapping]] = ..., revision: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteRowPoliciesRequest(_message.Message):
    __slots__ = ("table", "ids", "column", "etag", "actor")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    table: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    column: str
    etag: str
    actor: Actor
    def __init__(self, table: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., column: _Optional[str] = ..., etag: _Optional[str] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ...) -> None: ...

class DeleteRowPoliciesResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: str
    def __init__(self, revision: _Optional[str] = ...) -> None: ...

class TestRowPolicyPermissionsRequest(_message.Message):
    __slots__ = ("table", "permissions", "actor")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    table: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    actor: Actor
    def __init__(self, table: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ...) -> None: ...

class TestRowPolicyPermissionsResponse(_message.Message):
    __slots__ = ("permissions",)
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    permissions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, permissions: _Optional[_Iterable[str]] = ...) -> None: ...
