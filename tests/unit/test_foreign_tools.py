"""What other tools do with a function that attnfix has wrapped: Dynamo traces it, cloudpickle takes it apart."""

from __future__ import annotations

import cloudpickle
import pytest

from attnfix.compat.activation import Activation


@pytest.fixture
def dynamo():
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch
    torch._dynamo.reset()


ARMED = pytest.param(
    ("attention", "planning"), id="armed",
    marks=pytest.mark.xfail(strict=True, reason="Dynamo traces into what counts and corrects; to be rebuilt on wrapt"),
)  # fmt: skip


@pytest.mark.parametrize("loads", [ARMED, pytest.param(("attention",), id="pending")])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_compiled_caller_is_one_graph(engine, dynamo, loads, fullgraph):
    """With `fullgraph` a break raises; without, the caller falls into pieces, and each is compiled alone."""
    activation = Activation([engine.fix])
    engine.load(activation, *loads)
    from sglang.attention import Backend

    backend = Backend()
    x = dynamo.ones(3)
    expected = backend.forward(x) + 1
    found = dynamo.compile(lambda x: backend.forward(x) + 1, backend="eager", fullgraph=fullgraph)(x)
    assert found.equal(expected)
    assert not dynamo._dynamo.utils.counters["graph_break"]


@pytest.mark.xfail(strict=True, reason="the wrapper reaches the activation's lock; to be rebuilt on wrapt")
@pytest.mark.parametrize("what", ["function", "method", "class", "bound"])
def test_cloudpickle_by_value(engine, what):
    activation = Activation([engine.fix])
    planning = engine.load(activation, "attention", "planning")
    from sglang import attention

    picked = {
        "function": lambda: planning.plan, "method": lambda: attention.Backend.forward, "class": lambda: attention.Backend,
        "bound": lambda: attention.Backend().forward,
    }[what]()  # fmt: skip
    call = {
        "function": lambda it: it(1), "method": lambda it: it(None, 1), "class": lambda it: it().forward(1),
        "bound": lambda it: it(1),
    }[what]  # fmt: skip
    for module in (attention, planning):
        cloudpickle.register_pickle_by_value(module)
    try:
        again = cloudpickle.loads(cloudpickle.dumps(picked))
    finally:
        for module in (attention, planning):
            cloudpickle.unregister_pickle_by_value(module)
    # Corrected as it was here or, where nobody arms it, the engine's own
    assert call(again) in (call(picked), {"function": 2}.get(what, 2))
