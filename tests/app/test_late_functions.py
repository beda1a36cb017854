"""Functions of the composition that are imported late: they reach executors of Spark by name."""

from __future__ import annotations

import pickle

import msgspec

from pdp.app import LazyFunction
from pdp.app.archived_bundle import rebuild_pdp


def test_a_late_function_survives_the_way_to_another_process() -> None:
    late = pickle.loads(pickle.dumps(LazyFunction("msgspec.json", "decode")))
    assert late(b'{"a":1}', type=dict[str, int]) == msgspec.json.decode(b'{"a":1}') == {"a": 1}
    assert pickle.dumps(LazyFunction(rebuild_pdp.__module__, rebuild_pdp.__name__))
