"""Policies: texts of files as one parsed and validated policy set, with ids, effects and places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import msgspec

from pdp.config.names import NameCheck
from pdp.engines.cedar.actions import Uid, as_text, id_problem, object_of, path_of
from pdp.engines.cedar.entity_files import declared_names
from pdp.engines.cedar.names import PolicyFault, find_faults, may_compare
from pdp.engines.cedar.schema import GENERATIONS, CedarSchema, CedarSources, SourceText, load_cedarpy
from pdp.engines.cedar.tokens import (
    TOO_DEEP,
    CedarToken,
    PolicyText,
    condition_texts,
    entity_tokens,
    find_depth,
    named_entities,
    read_entities,
    split_policies,
    tokens_of,
    unquote,
)
from pdp.engines.cedar.unknown_values import (
    MAY_READ,
    MISSING_NAME,
    UNKNOWN_EVIDENCE,
    holds_by_known_roles,
    never,
    reads_place,
    relax,
    values_read_by,
)
from pdp.engines.engine import DOT_IN_PART, ForbiddenPath, of_one_forbid
from pdp.errors import Place, PolicyInvalid

_QUOTED: Final = re.compile(r"`([^`]+)`|'([^']+)'")
_PREFIX: Final = re.compile(r"^for policy `[^`]*`, ")


class CedarPolicy(msgspec.Struct, frozen=True, dict=True):
    """Policy of a file. `id` is the annotation `@id`, else `policy<N>` by the place among all policies."""

    id: str
    effect: Literal["permit", "forbid"]
    text: str
    place: Place

    @cached_property
    def reads(self) -> frozenset[Uid]:
        """Return the entities that the policy names and whose content the policy may read."""
        return read_entities(self.text)

    @cached_property
    def _values_read(self) -> frozenset[str]:
        # a look at the text first: Cedar takes half a millisecond to parse a policy
        return values_read_by(form_of(self.text)) if MAY_READ.search(self.text) else frozenset()

    @cached_property
    def evidence(self) -> frozenset[str]:
        """Return the evidence of the principal that the policy reads."""
        return self._values_read - {"name"}

    @property
    def reads_name(self) -> bool:
        """Tell whether the policy reads the name of a new object."""
        return "name" in self._values_read

    @cached_property
    def is_on_every_action(self) -> bool:
        """Tell whether the scope of the policy names no action; in doubt True."""
        words = (token.text if token.kind != "text" else "" for token in tokens_of(self.text))
        return ("action", ",") in pairwise(words)

    def form(self) -> dict[str, Any]:
        """Return the policy in Cedar's JSON. Takes half a millisecond."""
        return form_of(self.text)

    @cached_property
    def names(self) -> frozenset[Uid]:
        """Return all entities that the policy names."""
        return named_entities(self.text)

    @cached_property
    def paths(self) -> tuple[ForbiddenPath, ...]:
        """Return the paths in the policy, by parts, and the texts in comparisons with names."""
        return of_one_forbid(self.id, self._paths())

    def _paths(self) -> Iterator[ForbiddenPath]:
        for type, (warehouse, *path) in sorted(filter(None, map(object_of, self.names))):
            text = ".".join(part.replace(".", DOT_IN_PART) for part in path)
            yield ForbiddenPath(text, frozenset({warehouse}))
            if type == "namespace":
                yield ForbiddenPath(f"{text}.", frozenset({warehouse}), "starts")
        texts, patterns = condition_texts(self.text)
        yield from (ForbiddenPath(text, None, "parts") for text in sorted(texts) if text)
        yield from (ForbiddenPath(text, None, "like") for text in sorted(patterns))

    def names_warehouse(self, warehouse: str) -> bool:
        """Tell whether the policy names a warehouse or an object in it, or reads an attribute of any warehouse."""
        words = [token.text.casefold() if token.kind != "text" else "" for token in tokens_of(self.text)]
        reads = any(word == "warehouse" and after != "::" for word, after in pairwise([*words, ""]))
        return reads or any(path_of(uid)[:1] == (warehouse,) for uid in self.names)


class RelaxedPolicies(NamedTuple):
    """Policies under unknown values, as cedarpy's parsed set; `relaxed` has the numbers of forbids with the reason.

    A permit on such evidence never holds, unless the known roles suffice. A forbid on such evidence is `relaxed`:
    without its conditions on the evidence, the forbid holds wherever evidence could make the forbid hold.
    """

    handle: Any
    relaxed: Mapping[int, str]


class CedarPolicies(msgspec.Struct, frozen=True, dict=True):
    """Policies in order, with cedarpy's parsed set; Cedar calls policy N `policy<N>`."""

    policies: tuple[CedarPolicy, ...]
    text: str
    handle: Any

    @cached_property
    def reads(self) -> frozenset[Uid]:
        """Return the entities that policies name and whose content they may read."""
        return frozenset(uid for policy in self.policies for uid in policy.reads)

    @cached_property
    def forbids(self) -> tuple[CedarPolicy, ...]:
        """Return the policies that forbid."""
        return tuple(policy for policy in self.policies if policy.effect == "forbid")

    @cached_property
    def forbids_read(self) -> frozenset[str]:
        """Return the evidence read by forbids, by the names of `Principal.unknown`."""
        found = frozenset(name for policy in self.forbids for name in policy.evidence)
        return found - {"member_of"} | ({"roles"} if "member_of" in found else frozenset())

    def for_unknown(self, unknown: frozenset[str]) -> RelaxedPolicies:
        """Return the policies for checks with unknown evidence, `name` or `place` of a new object."""
        made = self._for_unknown.get(unknown)
        if made is None:
            placed = self._placed if "place" in unknown else frozenset()
            made = self._for_unknown[unknown] = _relaxed(self.policies, unknown, placed)
        return made

    @cached_property
    def _placed(self) -> frozenset[int]:
        """Return the numbers of the forbids that depend on the place of a resource in its warehouse."""
        numbers = [number for number, policy in enumerate(self.policies) if policy.effect == "forbid"]
        forms = _forms_of([self.policies[number].text for number in numbers])
        return frozenset(number for number, form in zip(numbers, forms, strict=True) if reads_place(form))

    @cached_property
    def _for_unknown(self) -> dict[frozenset[str], RelaxedPolicies]:
        return {}

    @cached_property
    def words(self) -> frozenset[str]:
        """Return all names and strings of the policies: no other attribute of an entity can be read."""
        tokens = (token for policy in self.policies for token in tokens_of(policy.text))
        return frozenset(unquote(token) for token in tokens if token.kind != "sign")


def load_policies(sources: CedarSources, schema: CedarSchema) -> CedarPolicies:
    """Return the policies of files; raise PolicyInvalid with the place of the first problem."""
    for problem in find_problems(sources, schema):
        raise problem
    return parse_policies(sources.policies)


def parse_policies(sources: Sequence[SourceText]) -> CedarPolicies:
    """Return the policies of texts that were validated before; raise PolicyInvalid if this Cedar cannot parse one.

    Other threads run while Cedar parses: ten thousand policies take a quarter of a second.
    """
    for problem in filter(None, map(_find_depth, sources)):
        raise problem
    text = joined_text(sources)
    try:
        handle = load_cedarpy().PolicySet.from_str(text, release_gil=True)
    except ValueError as error:
        raise PolicyInvalid(f"does not parse: {error}", sources[0].place()) from None
    policies = tuple(_policies(sources))
    if len(handle) != len(policies):  # numbers and names of policies would be wrong
        raise PolicyInvalid(f"has {len(policies)} policies, and {len(handle)} for Cedar", sources[0].place())
    return CedarPolicies(policies, text, handle)


def joined_text(sources: Sequence[SourceText]) -> str:
    """Return the texts of files as one text."""
    return "\n".join(source.text for source in sources)


def find_problems(given: CedarSources, schema: CedarSchema) -> Iterator[PolicyInvalid]:
    """Yield the problems of policies: of the texts, then of the ids, then of the types."""
    sources = given.policies
    unparsed = list(_find_unparsed(sources))
    yield from unparsed
    policies = () if unparsed else tuple(_policies(sources))
    if not policies and not unparsed:
        yield PolicyInvalid("no policy in the text", Place(sources[0].file if sources else Place().file, 1))
    yield from _find_bad_ids(policies)
    yield from _find_ids_of_nothing(policies, given.warehouses)
    for policy, fault in find_name_faults(given, policies):
        check = (given.names or NameCheck())._replace(forbid=policy.effect == "forbid")
        if check.stops(is_wrong=fault.is_wrong):
            yield PolicyInvalid(f"policy `{policy.id}` {fault.message}", inside(policy, fault.offset))
    yield from _find_misfits(policies, joined_text(sources), schema) if policies else ()


def read_policies(sources: CedarSources) -> tuple[CedarPolicy, ...]:
    """Return the policies of texts without a check of any; raise PolicyInvalid for a text that Cedar cannot parse."""
    for problem in _find_unparsed(sources.policies):
        raise problem
    return tuple(_policies(sources.policies))


def policy_number(cedar_id: str) -> int:
    """Return the place of a policy by the id that Cedar gave."""
    return int(cedar_id.removeprefix("policy"))


def _policies(sources: Sequence[SourceText]) -> Iterator[CedarPolicy]:
    number = 0
    for source in sources:
        for part in split_policies(source.text):
            id, effect = _head(part)
            yield CedarPolicy(f"policy{number}" if id is None else id, effect, part.text, source.place(part.start))
            number += 1


def _head(part: PolicyText) -> tuple[str | None, Literal["permit", "forbid"]]:
    """Return the annotation `@id`, None without one, and the effect of a policy that Cedar parsed."""
    tokens, at, id = list(tokens_of(part.text)), 0, None
    while tokens[at].text == "@":
        has_value = tokens[at + 2].text == "("
        if tokens[at + 1].text == "id":
            id = unquote(tokens[at + 3]) if has_value else ""
        at += 5 if has_value else 2
    return id, "permit" if tokens[at].text == "permit" else "forbid"


def _find_unparsed(sources: Sequence[SourceText]) -> Iterator[PolicyInvalid]:
    for source in sources:
        if problem := _find_depth(source):
            yield problem
            continue
        if _error(source.text) is None and not _has_slot(source.text):
            continue
        for part in split_policies(source.text):
            if cause := _error(part.text):
                yield PolicyInvalid(f"does not parse: {cause}", _nearest(source, part, cause))
            elif slot := _has_slot(part.text):
                place = source.place(part.start + slot.start)
                yield PolicyInvalid("a template with `?`, which nothing links: write the principal or resource", place)


def _find_depth(source: SourceText) -> PolicyInvalid | None:
    """Return the problem of a text that Cedar must not parse."""
    at = find_depth(source.text)
    return None if at is None else PolicyInvalid(TOO_DEEP, source.place(at))


def _error(text: str) -> str | None:
    try:
        load_cedarpy().PolicySet.from_str(text)
    except ValueError as error:
        return str(error)
    return None


def _has_slot(text: str) -> CedarToken | None:
    return next((token for token in tokens_of(text) if token.text == "?" and token.kind == "sign"), None)


def _find_bad_ids(policies: Sequence[CedarPolicy]) -> Iterator[PolicyInvalid]:
    places: dict[str, Place] = {}
    for policy in policies:
        if not policy.id:
            yield PolicyInvalid("`@id` is empty: reasons name a policy by its id", policy.place)
        elif policy.id in places:
            yield PolicyInvalid(f"policy `{policy.id}` stands at {places[policy.id]} already", policy.place)
        places.setdefault(policy.id, policy.place)


def _find_ids_of_nothing(policies: Sequence[CedarPolicy], warehouses: frozenset[str] | None) -> Iterator[PolicyInvalid]:
    """Yield a problem for each entity outside of all checks: the policy would never match."""
    for policy in policies:
        for token in entity_tokens(policy.text):
            uid = token.type, token.text
            if problem := id_problem(uid, warehouses):
                message = f"policy `{policy.id}` names `{as_text(uid)}`, which is nothing: {problem}"
                yield PolicyInvalid(message, inside(policy, token.start))


def find_name_faults(given: CedarSources, policies: Sequence[CedarPolicy]) -> Iterator[tuple[CedarPolicy, PolicyFault]]:
    """Yield each policy with each fault of its names, if names are judged."""
    if given.names is None:
        return
    declared = declared_names(given.entities)
    comparing = [number for number, policy in enumerate(policies) if may_compare(policy.text)]
    forms = dict(zip(comparing, _forms_of([policies[number].text for number in comparing]), strict=True))
    for number, policy in enumerate(policies):
        for fault in find_faults(policy.text, given.names.known, declared, forms.get(number)):
            yield policy, fault


def inside(policy: CedarPolicy, offset: int) -> Place:
    """Return the place of a character of a policy."""
    place, inside = policy.place, SourceText(policy.text).place(offset)
    column = inside.column + (place.column - 1 if inside.line == 1 else 0)
    return Place(place.file, place.line + inside.line - 1, column)


def _find_misfits(policies: Sequence[CedarPolicy], text: str, schema: CedarSchema) -> Iterator[PolicyInvalid]:
    """Yield one problem for each policy that does not fit the schema. Cedar reports one for each possible action."""
    causes = _validated(text, schema)
    for number in sorted(causes):
        policy, cause = policies[number], min(causes[number], key=_rank)
        message = f"policy `{policy.id}` does not fit the schema: {cause}"
        yield PolicyInvalid(message, inside(policy, _offset(policy.text, cause)))


@lru_cache(maxsize=GENERATIONS)
def _validated(text: str, schema: CedarSchema) -> Mapping[int, Sequence[str]]:
    """Return what Cedar's validator says about each policy; remembered, for the start reads a text twice."""
    causes: dict[int, list[str]] = {}
    for error in load_cedarpy().validate_policies(text, schema.handle).errors:
        causes.setdefault(policy_number(error.policy_id), []).append(_PREFIX.sub("", error.error))
    return causes


def _rank(cause: str) -> tuple[bool, str]:
    """Return the order of causes: an unknown word first, for other causes follow from the word."""
    return not cause.startswith("unrecognized"), cause


def _nearest(source: SourceText, part: PolicyText, cause: str) -> Place:
    return source.place(part.start + _offset(part.text, cause))


def _offset(text: str, cause: str) -> int:
    """Return where a message points to: the first token that the message quotes. Cedar's messages have no place."""
    for match in _QUOTED.finditer(cause):
        quoted = [token.text for token in tokens_of(match[1] or match[2])]
        for token in tokens_of(text) if quoted else ():
            if token.text == quoted[-1] or (len(quoted) == 1 and token.text == f'"{quoted[0]}"'):
                return token.start
    return 0


def _relaxed(policies: Sequence[CedarPolicy], unknown: frozenset[str], placed: frozenset[int]) -> RelaxedPolicies:
    if "attributes" in unknown:
        unknown |= {"attributes.email"}
    texts, relaxed = [], dict[int, str]()
    for number, policy in enumerate(policies):
        is_forbid = policy.effect == "forbid"
        text, is_known = policy.text, unknown.isdisjoint(policy.evidence)
        # a permit without a name to read decides as Cedar does
        is_missing = number in placed or (is_forbid and "name" in unknown and policy.reads_name)
        if is_missing or not is_known:
            form = form_of(text)
            if is_forbid:
                form = relax(form, unknown)
                relaxed[number] = MISSING_NAME if is_missing else UNKNOWN_EVIDENCE
            elif not holds_by_known_roles(form, unknown):
                form = never(form)
            written = {"staticPolicies": {"policy0": form}, "templates": {}, "templateLinks": []}
            text = load_cedarpy().policies_from_json_str(msgspec.json.encode(written).decode())
        texts.append(text)
    return RelaxedPolicies(load_cedarpy().PolicySet.from_str("\n".join(texts)), relaxed)


def form_of(text: str) -> dict[str, Any]:
    """Return a policy in Cedar's JSON."""
    (form,) = _forms_of([text])
    return form


def _forms_of(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return policies in Cedar's JSON. One call for all takes a fraction of a call for each."""
    found = msgspec.json.decode(load_cedarpy().policies_to_json_str("\n".join(texts)))["staticPolicies"]
    return [dict(found[f"policy{number}"]) for number in range(len(texts))]
