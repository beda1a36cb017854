from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckRequest(_message.Message):
    __slots__ = ("checks", "consistency", "explain")
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[Check]
    consistency: Consistency
    explain: bool
    def __init__(self, checks: _Optional[_Iterable[_Union[Check, _Mapping]]] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ..., explain: _Optional[bool] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("decisions", "revision", "decision_id")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    revision: str
    decision_id: str
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("principal", "action", "resource", "delegated", "acting_role", "context")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    action: str
    resource: Resource
    delegated: bool
    acting_role: str
    context: Context
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., action: _Optional[str] = ..., resource: _Optional[_Union[Resource, _Mapping]] = ..., delegated: _Optional[bool] = ..., acting_role: _Optional[str] = ..., context: _Optional[_Union[Context, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("principal", "acting_role", "target", "action", "referenced_by", "view_names", "views", "caller")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACTING_ROLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_BY_FIELD_NUMBER: _ClassVar[int]
    VIEW_NAMES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    principal: Principal
    acting_role: str
    target: Resource
    action: str
    referenced_by: str
    view_names: ViewNames
    views: _containers.RepeatedCompositeFieldContainer[View]
    caller: TokenIdentity
    def __init__(self, principal: _Optional[_Union[Principal, _Mapping]] = ..., acting_role: _Optional[str] = ..., target: _Optional[_Union[Resource, _Mapping]] = ..., action: _Optional[str] = ..., referenced_by: _Optional[str] = ..., view_names: _Optional[_Union[ViewNames, _Mapping]] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., caller: _Optional[_Union[TokenIdentity, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("allowed", "by", "errors", "storage_access", "referenced_by_used", "steps", "revision", "decision_id", "error")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_ACCESS_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_BY_USED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    by: _containers.RepeatedScalarFieldContainer[str]
    errors: _containers.RepeatedScalarFieldContainer[str]
    storage_access: str
    referenced_by_used: bool
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    revision: str
    decision_id: str
    error: Error
    def __init__(self, allowed: _Optional[bool] = ..., by: _Optional[_Iterable[str]] = ..., errors: _Optional[_Iterable[str]] = ..., storage_access: _Optional[str] = ..., referenced_by_used: _Optional[bool] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., revision: _Optional[str] = ..., decision_id: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

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
