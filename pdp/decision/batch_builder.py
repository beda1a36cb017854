"""Builder of batch requests: joins checks that share everything but the resource."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter, is_
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.json import encode
from msgspec.structs import replace

from pdp.decision.bodies import (
    CheckBody,
    ContextBody,
    ResourceBody,
    bound_values,
    make_arguments,
    make_principal,
    make_question,
    make_resource,
)
from pdp.decision.path_arrays import PathArrayParser, RepeatedText
from pdp.errors import InvalidArgument
from pdp.model.answer import Rejection
from pdp.model.arrays import PathArray, positions_by
from pdp.model.question import (
    NO_ARGUMENTS,
    NO_CONTEXT,
    UNNAMED,
    AtLeast,
    BatchRequest,
    Check,
    CheckGrouper,
    Principal,
    Question,
    RequestContext,
    Resource,
)
from pdp.model.references import MAX_NAME, bound_name, check_part, is_id, parse_resource
from pdp.model.trino_operations import TRINO_PREFIX
from pdp.model.vocabulary import ARGUMENTS

T = TypeVar("T")
Named: TypeAlias = str | ResourceBody | UnsetType
"""Resource as a check names it. UNSET where the check names none."""
_FIRST: Final = range(1)
_BOTH: Final = Rejection("invalid_argument", "a check has `resource` or `resources`, not both")


def _directly(make: Callable[..., T], *given: object) -> T:
    return make(*given)


class BatchBuilder:
    """Builder of a request. Positions count resources, in the order of the calls."""

    def __init__(self) -> None:
        self._singles: list[Check] = []
        self._columns: list[Check] = []
        self._rejected: dict[int, Rejection] = {}
        self._unresolved: list[Check] = []
        self._size = 0
        self._shared = RepeatedText()

    @property
    def size(self) -> int:
        """Return the number of positions so far."""
        return self._size

    def add_bodies(self, bodies: Sequence[CheckBody]) -> None:
        """Add decoded JSON checks at the next positions, as `add_body` does one after the other.

        Equal questions are read once, and their plain references become columns.
        """
        if len(bodies) == 1:
            self.add_body(bodies[0])
            return
        bodies, at = self._add_lists(bodies)
        for rows in _equal_questions(bodies):
            body = bodies[rows[0]]
            shared = _shared_check(body) if len(rows) > 1 else None
            if shared is None:
                part = SharedParts().once if len(rows) > 1 else _directly
                for row in rows:
                    self._put_body(bodies[row], at[row], part)
            else:
                whole = len(rows) == len(bodies)
                self._put_column(
                    shared, [bodies[row].resource for row in rows], at if whole else [at[row] for row in rows]
                )

    def add_items(self, items: Iterable[CheckBody | Rejection]) -> None:
        """Add decoded checks and rejections at the next positions, in order."""
        for is_rejected, run in groupby(items, lambda item: isinstance(item, Rejection)):
            equal: Any = list(run)
            if is_rejected:
                for rejected in equal:
                    self.reject(rejected)
            else:
                self.add_bodies(equal)

    def add_body(self, body: CheckBody) -> None:
        """Add a decoded JSON check at the next position, or at one position for each of its `resources`.

        A position is rejected if a part of its check does not parse. Raise TooMuchRepeated as `share` does.
        """
        if body.resources is not UNSET:
            self._add_list(body, body.resources)
        else:
            self._size += 1
            self._put_body(body, self._size - 1)

    def share(self, body: CheckBody, count: int) -> None:
        """Count the text of a body that `count` resources share; raise TooMuchRepeated beyond the limit."""
        self._shared.add(body, count)

    def take(self, count: int) -> range:
        """Take the next positions. Each needs a question by `put`."""
        start = self._size
        self._size += count
        return range(start, self._size)

    def put(self, body: CheckBody, named: Sequence[str | ResourceBody], at: Sequence[int]) -> None:
        """Put the question of a body without resources, about each of some resources, at positions that were taken."""
        shared = _shared_check(body)
        if shared is not None:
            self._put_column(shared, named, at)
            return
        part = SharedParts().once
        for resource, position in zip(named, at, strict=True):
            self._put_body(replace(body, resource=resource, resources=UNSET), position, part)

    def add_resources(
        self, check: Check, resources: Sequence[Resource | Rejection], at: Sequence[int] | None = None
    ) -> None:
        """Add one question about many resources, at the positions `at` or else at the next ones.

        `check` has no resources yet. All calls for one request with `at`, and `add_column`, must together cover all
        positions.
        """
        resolved: list[tuple[Resource, int]] = []
        unresolved: list[int] = []
        positions = range(self._size, self._size + len(resources)) if at is None else at
        self._size += len(resources)
        for position, resource in zip(positions, resources, strict=True):
            if isinstance(resource, Rejection):
                self._rejected[position] = resource
                unresolved.append(position)
            else:
                resolved.append((resource, position))
        self._put_resources(check, resolved)
        if unresolved:
            self._unresolved.append(replace(check, at=unresolved))

    def add_column(self, check: Check, resources: PathArray, at: Sequence[int]) -> None:
        """Add one question about a column of paths at the positions `at`.

        The calls for one request must together cover all positions.
        """
        self._size += len(resources)
        self._columns.append(replace(check, resources=resources, at=at))

    def reject(self, rejected: Rejection, count: int = 1) -> None:
        """Reject the next `count` positions."""
        start = self._size
        self._size += count
        self._rejected |= dict.fromkeys(range(start, self._size), rejected)

    def request(
        self, surface: str, consistency: str | AtLeast = "minimize_latency", *, explain: bool = False
    ) -> BatchRequest:
        """Return the finished request. Its checks are in the order of their first positions."""
        checks = (*_joined(self._singles), *self._columns)
        if len(checks) > 1:
            checks = tuple(sorted(checks, key=lambda check: check.at[0]))
        rejected = dict(sorted(self._rejected.items())) if self._rejected else {}
        return BatchRequest(surface, self._size, checks, rejected, self._unresolved, consistency, explain)

    def unfiltered_request(self, surface: str) -> BatchRequest:
        """Return the finished request of a caller who applies no row filters and masks."""
        request = self.request(surface)
        checks = [check.asking(unfiltered=True) for check in request.checks]
        return replace(request, checks=checks)

    def _add_lists(self, bodies: Sequence[CheckBody]) -> tuple[Sequence[CheckBody], Sequence[int]]:
        """Take positions for all bodies and add those with `resources`; return the others with their positions."""
        start = self._size
        if [body.resources for body in bodies].count(UNSET) == len(bodies):
            self._size += len(bodies)
            return bodies, range(start, self._size)
        others: list[CheckBody] = []
        at: list[int] = []
        for body in bodies:
            if body.resources is UNSET:
                others.append(body)
                at.append(self._size)
                self._size += 1
            else:
                self._add_list(body, body.resources)
        return others, at

    def _add_list(self, body: CheckBody, resources: list[str | ResourceBody]) -> None:
        """Add the question of a body about each of some resources at the next positions."""
        self.share(body, len(resources))
        if body.resource is not UNSET:
            self.reject(_BOTH, len(resources) or 1)
        else:
            self.put(body, resources, self.take(len(resources)))

    def _put_body(self, body: CheckBody, position: int, part: Callable[..., Any] = _directly) -> None:
        """Put a check of one resource at a position; reject the position if a part does not parse."""
        principal = None
        try:
            resource, context, query_id = _subject(body, part)
            principal = _principal(body, part)
            question = make_question(body, principal, context)
        except InvalidArgument as error:
            if principal is UNNAMED:
                # A missing principal is the earlier error. Only admission knows whether the caller has one.
                self._unresolved.append(Check(Question(UNNAMED, ""), (), (position,)))
            self._rejected[position] = Rejection(error.code, str(error))
        else:
            self._singles.append(Check(question, (resource,), (position,), query_id))

    def _put_column(self, shared: Check, named: Sequence[Named], at: Sequence[int]) -> None:
        """Put a question about each of some resources at the positions `at`. Bad resources reject their positions."""
        parser = PathArrayParser()
        left = at
        # Trino's plans take no name in a column for a metadata table's, such as `t$files`. Only Trino's own decoder
        # makes columns for them, because it has told such names apart.
        if not shared.question.action.startswith(TRINO_PREFIX):
            left = parser.add(named, at)
        for column in parser.columns.values():
            positions = at if len(column.at) == len(at) else column.at
            self._columns.append(replace(shared, resources=column.resources(), at=positions))
        if left:
            named_at = dict(zip(at, named, strict=True))
            self._put_resources(shared, self._resolved((named_at[position], position) for position in left))

    def _resolved(self, named: Iterable[tuple[Named, int]]) -> Iterator[tuple[Resource, int]]:
        """Yield resources with their positions; reject the positions of those that do not parse."""
        for name, position in named:
            try:
                yield _make_named(name), position
            except InvalidArgument as error:
                self._rejected[position] = Rejection(error.code, str(error))

    def _put_resources(self, shared: Check, resources: Iterable[tuple[Resource, int]]) -> None:
        """Put a question about resources at their positions: one column per type, warehouse and ref."""
        columns: dict[tuple[str, str, str | None], tuple[list[Resource], list[int]]] = {}
        for resource, position in resources:
            column = columns.setdefault((resource.type, resource.warehouse, resource.ref), ([], []))
            column[0].append(resource)
            column[1].append(position)
        self._columns += (replace(shared, resources=some, at=at) for some, at in columns.values())


def _joined(checks: Sequence[Check]) -> Sequence[Check]:
    """Return checks of one resource each as checks of many."""
    if len(checks) <= 1:
        return checks
    grouper = CheckGrouper()
    for check in checks:
        grouper.put(check, check.at[0])
    return grouper.checks()


def make_check(body: CheckBody) -> Check | None:
    """Return the check of a body about one resource, at position 0; None if the builder must look at the body."""
    if body.resources is not UNSET:
        return None
    try:
        if type(body.resource) is str and body.context is UNSET:
            resource, context, query_id = parse_resource(body.resource), NO_CONTEXT, ""
        else:
            resource, context, query_id = _subject(body)
        question = make_question(body, _principal(body), context)
    except InvalidArgument:
        return None
    return Check(question, (resource,), _FIRST, query_id)


def _equal_questions(bodies: Sequence[CheckBody]) -> Iterable[Sequence[int]]:
    """Return the rows of bodies that are equal in all but the resource, in order of first appearance."""
    if not bodies:
        return ()
    questions: list[Hashable] = list(map(_all_but_resources(type(bodies[0])), bodies))
    try:
        if len(set(questions)) == 1:
            return (range(len(bodies)),)
    except TypeError:  # a principal or a context in parts has no hash: equal JSON stands for the body
        questions = [encode(replace(body, resource=UNSET, resources=UNSET)) for body in bodies]
    return positions_by(questions, lambda question: question).values()


@cache
def _all_but_resources(body: type[CheckBody]) -> Callable[[CheckBody], Hashable]:
    """Return the getter of all fields of bodies of a type but their resources."""
    return attrgetter(*[name for name in body.__struct_fields__ if name not in ("resource", "resources")])


def _shared_check(body: CheckBody) -> Check | None:
    """Return the check of a body without resources; None if a part does not parse, or if there are arguments."""
    if body.context is not UNSET and body.context.arguments:
        return None
    try:
        context, query_id = _circumstances(body.context)
        question = make_question(body, _principal(body), context)
    except InvalidArgument:
        return None
    return Check(question, (), (), query_id)


class SharedParts:
    """Shared parts of bodies, made once: free values take time for each value."""

    def __init__(self) -> None:
        self._made: dict[object, tuple[tuple[object, ...], Any]] = {}

    def once(self, make: Callable[..., T], *given: object) -> T:
        """Return the part that a function makes of the very same values, or raise its InvalidArgument."""
        known = self._made.get(make)
        if known is None or not all(map(is_, known[0], given)):
            try:
                made: Any = make(*given)
            except InvalidArgument as error:
                made = error
            known = self._made[make] = given, made
        if isinstance(known[1], InvalidArgument):
            raise known[1].with_traceback(None)
        part: T = known[1]
        return part


def _subject(body: CheckBody, part: Callable[..., Any] = _directly) -> tuple[Resource, RequestContext, str]:
    """Return the resource with its arguments, the environment and the query id of a check; raise InvalidArgument.

    `part` makes a part of the body by a function.
    """
    resource: Resource = part(_make_named, body.resource)
    if body.context is not UNSET:
        arguments = part(make_arguments, body.context.arguments, ARGUMENTS.get((resource.type, body.action), ""))
        if arguments is not NO_ARGUMENTS:
            resource = replace(resource, arguments=arguments)
    context, query_id = part(_circumstances, body.context)
    return resource, context, query_id


def _circumstances(context: ContextBody | UnsetType) -> tuple[RequestContext, str]:
    """Return the environment and the query id of a check; raise InvalidArgument."""
    if context is UNSET:
        return NO_CONTEXT, ""
    if not is_id(context.query_id):
        raise InvalidArgument("`context.queryId` is not 1 to 128 of A-Z a-z 0-9 . _ : -")
    if context.actions:
        bound_values({"actions": list(context.actions)}, "context.actions")
    api = context.api
    if api is UNSET:
        return RequestContext(actions=context.actions), context.query_id
    bound_name(api.name)
    return RequestContext(api.name, api.version, context.actions), context.query_id


def _principal(body: CheckBody, part: Callable[..., Any] = _directly) -> Principal:
    """Return the principal of a check; raise InvalidArgument for an invalid one, or for a long action."""
    if len(body.action) > MAX_NAME or not body.action.isidentifier():
        check_part(body.action)
    principal: Principal = UNNAMED if body.principal is UNSET else part(make_principal, body.principal)
    return principal


def _make_named(named: Named) -> Resource:
    if named is UNSET:
        raise InvalidArgument("object missing required field `resource`")
    return make_resource(named)
