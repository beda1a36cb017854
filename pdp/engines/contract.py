"""Contract of engines, as tests for pytest. A package derives `EngineContract` and runs the tests on its own engine.

    class TestMyEngine(EngineContract):
        def make_engine(self):
            return MyEngine({})

The tests ask each group of `groups` about the resources of `resources`. A package replaces both by questions that its
engine permits, forbids and leaves open.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Sequence

from pdp.engines.engine import PERMIT, AsyncEngine, Cost, Dependency, Engine, EngineQuestion, Verdicts
from pdp.engines.guarded import checked
from pdp.facts.snapshot import Facts
from pdp.model.answer import Trace
from pdp.model.question import Principal, Question, Resource
from pdp.model.vocabulary import CATALOG_ACTIONS


class EngineContract:
    """Tests that every engine passes. A derived class supplies `make_engine`."""

    def make_engine(self) -> Engine | AsyncEngine:
        """Return a new engine with the same policies each time."""
        raise NotImplementedError

    def facts(self) -> Facts:
        """Return the facts of the questions."""
        return Facts.empty()

    def groups(self) -> Sequence[EngineQuestion]:
        """Return the groups of the questions: all actions on tables, for a user, a role and nobody."""
        principals = (Principal("user", "oidc~alice"), Principal("role", "etl"), Principal("anonymous", ""))
        actions = sorted(CATALOG_ACTIONS["table"])
        return [
            EngineQuestion(Question(who, action), "table", "lake", "main") for who in principals for action in actions
        ]

    def resources(self) -> Sequence[Resource]:
        """Return the resources of the questions."""
        return [Resource("table", "lake", ("sales", name), "main") for name in ("orders", "items", "a.b", "*", "")]

    def test_the_description_is_complete_and_constant(self) -> None:
        """Check the name, the digest, the sources and the cost."""
        engine, other = self.make_engine(), self.make_engine()
        assert engine.name.replace("_", "").isalnum(), "`name` has letters, digits and underscores"
        assert engine.digest, "`digest` is a text that changes with the policies"
        assert engine.digest == other.digest, "two engines with the same policies have the same digest"
        assert all(isinstance(source, Dependency) for source in engine.reads), "`reads` is a set of Dependency"
        assert isinstance(engine.cost, Cost), "`cost` is a Cost"

    def test_applies_is_constant(self) -> None:
        """Check that `applies` gives one answer for each action and type, also for unknown ones."""
        engine, other = self.make_engine(), self.make_engine()
        pairs = [(action, type) for type, actions in CATALOG_ACTIONS.items() for action in sorted(actions)]
        for pair in [*pairs, ("no such action", "table"), ("read_data", "no such type")]:
            answers = [bool(each.applies(*pair)) for each in (engine, engine, other)]
            assert len(set(answers)) == 1, f"`applies{pair}` is not constant"

    def test_verdicts_have_the_right_form(self) -> None:
        """Check lengths and types of verdicts, for no, one and many resources."""
        for group in self._asked():
            for resources in ((), self.resources()[:1], self.resources()):
                self._ask(self.make_engine(), group, resources)

    def test_a_batch_equals_its_singles_in_any_order(self) -> None:
        """Check that a verdict depends on the resource alone, not on its neighbours."""
        engine, resources = self.make_engine(), self.resources()
        for group in self._asked():
            together = self._ask(engine, group, resources)
            backwards = self._ask(engine, group, resources[::-1])
            for row, resource in enumerate(resources):
                alone = self._ask(engine, group, (resource,))
                for verdicts, at in ((together, row), (backwards, len(resources) - 1 - row)):
                    assert verdicts.effects[at] == alone.effects[0], f"{resource} has another verdict in a batch"
                    assert verdicts.by[at] == alone.by[0], f"{resource} has another reason in a batch"

    def test_a_second_question_has_the_same_answer(self) -> None:
        """Check that questions leave nothing behind, so that verdicts can be cached."""
        engine, resources = self.make_engine(), self.resources()
        first = [self._ask(engine, group, resources) for group in self._asked()]
        again = [self._ask(engine, group, resources) for group in self._asked()]
        other = [self._ask(self.make_engine(), group, resources) for group in self._asked()]
        assert first == again, "the second answer differs"
        assert first == other, "another engine with the same policies answers in another way"

    def test_explanations_agree_with_verdicts(self) -> None:
        """Check that `explain` returns a Trace whose outcome permits if the verdict does."""
        engine = self.make_engine()
        explain = getattr(engine, "explain", None)
        if explain is None:
            assert inspect.iscoroutinefunction(engine.decide), "an engine that is not async has `explain`"
            return
        for group in self._asked():
            for resource in self.resources():
                trace = explain(group, resource, self.facts())
                assert type(trace) is Trace, "`explain` returns a Trace"
                permits = self._ask(engine, group, (resource,)).effects[0] == PERMIT
                assert (trace.outcome == "permit") == permits, f"the explanation of {resource} has another outcome"

    def test_a_thousand_resources_take_ten_seconds_at_most(self) -> None:
        """Check that one group of a thousand resources is decided within ten seconds."""
        resources = [Resource("table", "lake", ("sales", f"t{number}"), "main") for number in range(1000)]
        started = time.monotonic()
        for group in self._asked()[:1]:
            self._ask(self.make_engine(), group, resources)
        assert time.monotonic() - started < 10, "a group of 1,000 resources takes too long"

    def _asked(self) -> Sequence[EngineQuestion]:
        engine = self.make_engine()
        asked = [group for group in self.groups() if engine.applies(group.action, group.type)]
        assert asked, "the engine applies to none of `groups`: return other groups"
        return asked

    def _ask(self, engine: Engine | AsyncEngine, group: EngineQuestion, resources: Sequence[Resource]) -> Verdicts:
        """Return the verdicts; fail if the service would deny them as invalid."""
        found: object
        if inspect.iscoroutinefunction(engine.decide):
            found = asyncio.run(_decide(engine, group, resources, self.facts()))  # type: ignore[arg-type]
        else:
            found = engine.decide(group, resources, self.facts())  # type: ignore[call-arg]
        return checked(engine.name, found, len(resources))


async def _decide(engine: AsyncEngine, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> object:
    return await engine.decide(group, resources, facts, asyncio.get_running_loop().time() + 10)
