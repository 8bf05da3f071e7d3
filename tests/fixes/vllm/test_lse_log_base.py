"""vllm.lse-log-base: bases of both halves of a merge without an engine, and on real releases."""

from __future__ import annotations

import math
from types import FunctionType, SimpleNamespace

import pytest
import torch

from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.status.fix_state import INSTALLED, FixState
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.vllm.shared import dcp_lse_base
from tests.support import one_call
from tests.support.no_sync import NoSync

HEADS, D, SCALE = 4, 32, 32**-0.5
NEW, CHUNK = [20, 3, 17], [0, 30, 18]  # the first request has no context in the chunk


def state_of(fix="vllm.lse-log-base"):
    state = FixState(BY_ID[fix])
    state.settle(INSTALLED, "for a test")
    return state


def target(name, fix="vllm.lse-log-base"):
    return one_call.target_of(BY_ID[fix], name)


def corrected(function, name, state):
    """`function` as the method of the engine with that name, with the correction on it."""
    return one_call.wrapper(target(name), function, state).function


def drawn(seed=0):
    draw = torch.Generator().manual_seed(seed)
    q, new = (torch.randn(sum(NEW), HEADS, D, generator=draw) for _ in range(2))
    return q, new, torch.randn(sum(CHUNK), HEADS, D, generator=draw)


def attend(q, k, q_lens, kv_lens, base=2.0, causal=False):
    """(out, lse [tokens, heads]) of a ragged kernel with that base."""
    kernel = emulators.RaggedWrapper(base)
    kernel.plan(cumulative(q_lens), cumulative(kv_lens), causal=causal, sm_scale=SCALE)
    return kernel, kernel.run(q, k, k, return_lse=True)


def natural(*args, **kwargs):
    return attend(*args, base=math.e, **kwargs)[1][1].t()


def in_layer(**prefill):
    """How the engine passes the batch up to 0.20.2: with every call."""
    return {}, {"prefill": SimpleNamespace(**prefill)}


def in_backend(**prefill):
    """From 0.21.0 the backend holds it."""
    return {"_prefill_metadata": SimpleNamespace(**prefill)}, {}


STARTS = {"query_start_loc": cumulative(NEW), "chunked_context": SimpleNamespace(cu_seq_lens=cumulative(CHUNK)[None])}
_CHUNK = SimpleNamespace(query_start_loc=cumulative(NEW), cu_seq_lens=cumulative(CHUNK), index=1)
#: Where the batch is, how the call names its chunk, the parameters of both methods
FORMS = {
    "layer": (*in_layer(**STARTS), {"chunk_idx": 0}, "prefill, q, k, v, return_softmax_lse", "prefill, chunk_idx, q, k, v"),
    "backend": (*in_backend(**STARTS), {"chunk_idx": 0}, "q, k, v, return_softmax_lse", "chunk_idx, q, k, v"),
    "chunk": (
        *in_backend(query_start_loc=cumulative(NEW)), {"chunk": _CHUNK},
        "q, k, v, return_softmax_lse, out=None, output_scale=None", "chunk, q, k, v, out=None",
    ),
}  # fmt: skip
METHODS = """
def new_tokens(self, {new_tokens}):
    out, lse = attend_new(q, k, v)
    return (out, lse.transpose(0, 1)) if return_softmax_lse else out

def context_chunk(self, {context_chunk}):
    out, lse = attend_context(q, k, v)
    return out, lse.transpose(0, 1)
"""


def methods(form, attend_new, attend_context):
    """The engine's for new tokens and for a chunk, around these, which return (out, lse [tokens, heads])."""
    *_, new_tokens, context_chunk = FORMS[form]
    names = {"attend_new": attend_new, "attend_context": attend_context}
    exec(METHODS.format(new_tokens=new_tokens, context_chunk=context_chunk), names)
    return names["new_tokens"], names["context_chunk"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("base", [2.0, math.e])
def test_trtllm(form, strided, base):
    """A transposed view, as from 0.27.0, stays one; what was contiguous stays so."""
    attributes, with_prefill, with_chunk, *_ = FORMS[form]
    q, new, chunk = drawn()

    def attend_new(q, k, v):
        out, lse = attend(q, k, NEW, NEW, base, causal=True)[1]
        return out, lse if strided else lse.t().contiguous().t()

    def attend_context(q, k, v):
        out, lse = attend(q, k, NEW, CHUNK, base)[1]
        lse[: NEW[0]] = 17.0  # a kernel leaves what it likes in rows without context
        return out, lse if strided else lse.t().contiguous().t()

    class Backend:
        new_tokens, context_chunk = methods(form, attend_new, attend_context)

    state = state_of()
    Backend.new_tokens = corrected(Backend.new_tokens, "_run_prefill_new_tokens_trtllm_ragged", state)
    Backend.context_chunk = corrected(Backend.context_chunk, "_run_prefill_context_chunk_trtllm_ragged", state)
    backend = Backend()
    vars(backend).update(attributes, scale=SCALE)
    assert type(backend.new_tokens(q=q, k=new, v=new, return_softmax_lse=False, **with_prefill)) is torch.Tensor
    assert state.state == "effective" and not state.observations, "nothing to see where nothing is merged"
    for _ in range(2):
        _, lse = backend.new_tokens(q=q, k=new, v=new, return_softmax_lse=True, **with_prefill)
        torch.testing.assert_close(lse, natural(q, new, NEW, NEW, causal=True))
        assert lse.is_contiguous() is not strided
        _, lse = backend.context_chunk(q=q, k=chunk, v=chunk, **with_prefill, **with_chunk)
        torch.testing.assert_close(lse[:, NEW[0] :], natural(q, chunk, NEW, CHUNK)[:, NEW[0] :])
        assert lse.is_contiguous() is not strided
    assert [path[1] for path in state.observations] == ["new tokens", "context"]
    assert state.counters.corrections == (4 if base == 2 else 0) and state.armed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", [2.0, math.e])
def test_flashinfer(form, base):
    """Its wrapper says where requests begin: the backend of 0.21.0-0.27.1 keeps no metadata."""
    _, _, with_chunk, *_ = FORMS[form]
    q, new, chunk = drawn()
    main, context = attend(q, new, NEW, NEW, base, True)[0], attend(q, chunk, NEW, CHUNK, base)[0]
    chunks = [None, context] if form == "chunk" else [context]

    def attend_new(q, k, v):
        out, lse = main.run(q, k, v, return_lse=True)
        return out, lse.t().contiguous().t()

    def attend_context(q, k, v):
        return context.run(q, k, v, return_lse=True)

    class Backend:
        new_tokens, context_chunk = methods(form, attend_new, attend_context)
        scale = SCALE

    state = state_of()
    Backend.new_tokens = corrected(Backend.new_tokens, "_run_prefill_new_tokens_fi", state)
    Backend.context_chunk = corrected(Backend.context_chunk, "_run_prefill_context_chunk_fi", state)
    backend, prefill = Backend(), SimpleNamespace(prefill_main=main, prefill_chunks=chunks)
    vars(backend).update({} if form == "layer" else {"_prefill_main": main, "_prefill_chunks": chunks})
    kwargs = {"prefill": prefill} if form == "layer" else {}
    assert type(backend.new_tokens(q=q, k=new, v=new, return_softmax_lse=False, **kwargs)) is torch.Tensor
    _, lse = backend.new_tokens(q=q, k=new, v=new, return_softmax_lse=True, **kwargs)
    torch.testing.assert_close(lse, natural(q, new, NEW, NEW, causal=True))
    _, lse = backend.context_chunk(q=q, k=chunk, v=chunk, **kwargs, **with_chunk)
    expected = natural(q, chunk, NEW, CHUNK)
    torch.testing.assert_close(lse, expected)
    assert lse[:, : NEW[0]].isneginf().all() and state.counters.corrections == (2 if base == 2 else 0) and state.armed


@pytest.mark.parametrize("base", [2.0, math.e])
def test_an_lse_that_goes_on_as_flashinfer_returns_it_is_turned(base):
    q, new, _ = drawn()
    main, _ = attend(q, new, NEW, NEW, base, True)

    class Layer:
        scale = SCALE

        def new_tokens(self, prefill, q, k, v, return_softmax_lse):
            return prefill.prefill_main.run(q, k, v, return_lse=return_softmax_lse)

    state = state_of()
    Layer.new_tokens = corrected(Layer.new_tokens, "_run_prefill_new_tokens_fi", state)
    prefill = SimpleNamespace(prefill_main=main)
    for _ in range(2):
        _, lse = Layer().new_tokens(prefill=prefill, q=q, k=new, v=new, return_softmax_lse=True)
        torch.testing.assert_close(lse, natural(q, new, NEW, NEW, causal=True))
        assert lse.is_contiguous()
    assert state.counters.corrections == 2


def test_once_a_kernel_is_known_no_call_waits():
    q, new, _ = drawn()
    _, result = attend(q, new, NEW, NEW, 2.0, True)
    state, attributes, with_prefill = state_of(), *in_backend(**STARTS)
    method, _ = methods("backend", lambda q, k, v: (result[0], result[1].clone()), None)
    method = corrected(method, "_run_prefill_new_tokens_trtllm_ragged", state)
    backend = type("Backend", (), {"method": method, "scale": SCALE, **attributes})()
    backend.method(q=q, k=new, v=new, return_softmax_lse=True, **with_prefill)
    with NoSync():
        backend.method(q=q, k=new, v=new, return_softmax_lse=True, **with_prefill)
    assert state.counters.corrections == 2


def test_rows_without_context_are_neutralised_before_the_conversion():
    """The catalogue's order is that of the corrections, from the inside out, and -inf stays -inf."""
    rows, name = "vllm.empty-context-chunks", "_run_prefill_context_chunk_trtllm_ragged"
    order = [fix.id for fix in FIXES]
    assert order.index("vllm.skip-context-zero-fill") < order.index(rows) < order.index("vllm.lse-log-base")
    q, _, chunk = drawn()
    _, (out, lse) = attend(q, chunk, NEW, CHUNK)
    lse[: NEW[0]], out[: NEW[0]] = 17.0, 5.0
    _, method = methods("layer", None, lambda q, k, v: (out, lse.t().contiguous().t()))
    states, base = (state_of(rows), state_of()), target(name)
    wrapper = one_call.wrapper(target(name, rows), method, states[0]).add(states[1], base.correct, base.needed)
    prefill = SimpleNamespace(**STARTS)
    prefill.chunked_context.seq_lens = torch.tensor([CHUNK], dtype=torch.int32)
    layer = type("Layer", (), {"method": wrapper.function, "scale": SCALE})()
    out, lse = layer.method(prefill=prefill, chunk_idx=0, q=q, k=chunk, v=chunk)
    torch.testing.assert_close(lse, natural(q, chunk, NEW, CHUNK))
    assert (out[: NEW[0]] == 0).all() and [state.counters.corrections for state in states] == [1, 1]


# Decode context parallelism: the engine's wrapper of FlashInfer's two, on a rank of one

PAGE = 4
ENGINE = """
def run(self, layer, prefill_query, cache, key, value, out):
    context, lse_context = self._context.run(prefill_query, cache, k_scale=layer._k_scale_float, return_lse=True)
    context, lse_context = {combine}(context, lse_context)
    query, lse_query = self._new_tokens.run(prefill_query, key, value, return_lse=True)
    merge_attn_states(out, context, lse_context.transpose(0, 1).contiguous(), query, lse_query.transpose(0, 1).contiguous())
    return out
"""


def engines_plan(self, qo_indptr_cpu, paged_kv_indptr_cpu, paged_kv_last_page_len_cpu):
    return "the engine's"


class Rank:
    """`run` of 0.11 (natural combine), of 0.12 (base 2) or of 0.18 (base 2, held by the object), and what it merges."""

    def __init__(self, release, base=2.0, context=CHUNK, layout="NHD", context_base=None):
        self.merged = self.combined = None
        self.q, self.new, self.chunk = drawn()
        self.layout, self.lens = layout, context

        def merge_attn_states(out, context, lse_context, query, lse_query):
            self.merged = lse_context.clone(), lse_query.clone()

        def natural_combine(out, lse):
            self.combined = lse.clone()
            return out, lse

        def combine(out, lse, is_lse_base_on_e=True):
            self.combined = lse.clone()
            return out, lse * 1.0

        names = {"merge_attn_states": merge_attn_states, "cp_lse_ag_out_rs": natural_combine if release == 0.11 else combine}
        exec(ENGINE.format(combine="self._dcp_combine" if release == 0.18 else "cp_lse_ag_out_rs"), names)
        self.state = state_of()
        run, plan = corrected(names["run"], "run", self.state), corrected(engines_plan, "plan", self.state)
        self.wrapper = type("BatchDCPPrefillWrapper", (), {"run": run, "plan": plan})()
        self.wrapper._dcp_combine = combine
        self.wrapper._new_tokens, _ = attend(self.q, self.new, NEW, NEW, base, True)
        pages = [-(-n // PAGE) for n in context]
        self.wrapper._context = paged = emulators.PagedWrapper(context_base or base, layout)
        indices = torch.cat([torch.arange(8 * b, 8 * b + n) for b, n in enumerate(pages)])
        last = torch.tensor([(n - 1) % PAGE + 1 for n in context])
        paged.plan(cumulative(NEW), cumulative(pages), indices, last, HEADS, HEADS, D, PAGE, causal=False, sm_scale=SCALE)
        self.plan(pages, last)
        cache, at = torch.zeros(24, PAGE, HEADS, D), 0
        for b, n in enumerate(context):
            cache[8 * b : 8 * b + 8].view(-1, HEADS, D)[:n] = self.chunk[at : at + n]
            at += n
        self.cache = cache if layout == "NHD" else cache.transpose(1, 2).contiguous()

    def plan(self, pages, last):
        """The engine's plan of the next step, as the correction sees it."""
        names = ("qo_indptr_cpu", "paged_kv_indptr_cpu", "paged_kv_last_page_len_cpu")
        told = dict(zip(names, (cumulative(NEW), cumulative(pages), last)))
        assert self.wrapper.plan(**told) == "the engine's"

    def run(self, as_tuple=False):
        cache = (self.cache, self.cache) if as_tuple else torch.stack([self.cache, self.cache], 1)
        layer, out = SimpleNamespace(_k_scale_float=1.0), torch.zeros_like(self.q)
        assert self.wrapper.run(layer, self.q, cache, self.new, self.new, out=out) is out
        return self.merged

    def right(self):
        used = self.chunk[: sum(self.lens)]
        return natural(self.q, used, NEW, self.lens), natural(self.q, self.new, NEW, NEW, causal=True)


@pytest.mark.parametrize("release", [0.11, 0.12, 0.18])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("as_tuple", [False, True])
def test_both_parts_reach_the_merge_natural(release, layout, as_tuple):
    rank = Rank(release, layout=layout)
    context, query = rank.right()
    for _ in range(2):
        for merged, right in zip(rank.run(as_tuple), (context, query)):
            torch.testing.assert_close(merged, right)
        in_base_2 = context.t() / math.log(2)
        torch.testing.assert_close(rank.combined, context.t() if release == 0.11 else in_base_2)
    assert [path[3] for path in rank.state.observations] == ["context", "new tokens"]
    assert rank.state.counters.corrections == 4 and rank.state.armed


@pytest.mark.parametrize("release", [0.11, 0.18])
def test_a_natural_lse_is_left_alone(release, monkeypatch):
    rank = Rank(release, math.e)
    for _ in range(2):
        for merged, right in zip(rank.run(), rank.right()):
            torch.testing.assert_close(merged, right)
        monkeypatch.setattr(dcp_lse_base, "rebound", pytest.fail)  # once both kernels are known, nothing is looked on at
    assert rank.state.counters.corrections == 0 and rank.state.state == "fixed upstream"


@pytest.mark.parametrize("bases", [(math.e, 2.0), (2.0, math.e)])
def test_each_kernel_is_judged_by_itself(bases):
    rank = Rank(0.18, bases[0], context_base=bases[1])
    for _ in range(2):
        for merged, right in zip(rank.run(), rank.right()):
            torch.testing.assert_close(merged, right)
    assert rank.state.counters.corrections == 2


def test_a_rank_without_context_goes_by_the_new_tokens():
    """What it merges comes from the other ranks."""
    rank = Rank(0.12, context=[0, 0, 0])
    rank.wrapper._context.run = lambda *args, **kwargs: (torch.zeros_like(rank.q), torch.full((sum(NEW), HEADS), 3.0))
    context, _ = rank.run()
    torch.testing.assert_close(context, torch.full((HEADS, sum(NEW)), 3 * math.log(2)))
    assert [path[3] for path in rank.state.observations] == ["new tokens"]


@pytest.mark.parametrize("seen_at_work", [False, True])
def test_once_the_new_tokens_need_nothing_a_step_without_context_is_left_alone(seen_at_work, monkeypatch):
    """But where the context's kernel was seen to need it: what this rank merges then comes from the other ranks."""
    rank = Rank(0.12, math.e, context=CHUNK if seen_at_work else [0, 0, 0], context_base=2.0)
    if seen_at_work:
        rank.run()
        rank.plan([0, 0, 0], torch.zeros(3, dtype=torch.int32))
    rank.wrapper._context.run = lambda *args, **kwargs: (torch.zeros_like(rank.q), torch.full((sum(NEW), HEADS), 3.0))
    rank.run()
    if not seen_at_work:
        monkeypatch.setattr(dcp_lse_base, "rebound", pytest.fail)
    context, _ = rank.run()
    torch.testing.assert_close(context, torch.full((HEADS, sum(NEW)), 3 * math.log(2) if seen_at_work else 3.0))


def test_steps_without_context_never_ask_the_gpu(monkeypatch):
    """To look there waits. A step with context is looked at again."""
    rank = Rank(0.12, context=[0, 0, 0])
    kernel = rank.wrapper._context
    kernel.run = lambda *args, **kwargs: (torch.zeros_like(rank.q), torch.full((sum(NEW), HEADS), 3.0))
    for name in ("_qo_indptr_buf", "_paged_kv_indptr_buf", "_paged_kv_indices_buf", "_paged_kv_last_page_len_buf"):
        monkeypatch.delattr(kernel, name)
    for _ in range(3):
        rank.run()
    assert [path[3] for path in rank.state.observations] == ["new tokens"] and rank.state.armed
    full = Rank(0.12)
    rank.wrapper._context, rank.cache = full.wrapper._context, full.cache
    setattr(rank.wrapper, dcp_lse_base._STEP, getattr(full.wrapper, dcp_lse_base._STEP))
    rank.run()
    assert [path[3] for path in rank.state.observations] == ["new tokens", "context"]


def test_where_the_plan_was_not_seen_nothing_is_judged():
    """The engine planned before the fix was there; the next step's plan is seen."""
    rank = Rank(0.12)
    step = vars(rank.wrapper).pop(dcp_lse_base._STEP)
    rank.run()
    assert not rank.state.observations and rank.state.armed
    setattr(rank.wrapper, dcp_lse_base._STEP, step)
    rank.run()
    assert len(rank.state.observations) == 2


@pytest.mark.parametrize("base", [2.0, math.e])
def test_once_both_kernels_are_known_a_plan_tells_alone_whether_there_is_context(base):
    """Where this rank has none, what it merges is converted all the same, as others may have some; it counts as nothing."""
    rank = Rank(0.18, base)
    for _ in range(2):
        rank.run()
    rank.plan([0, 0, 0], torch.zeros(3, dtype=torch.int32))
    rank.run()
    assert getattr(rank.wrapper, dcp_lse_base._STEP) is None
    assert rank.state.armed and rank.state.counters.corrections == (4 if base == 2 else 0)


@pytest.mark.parametrize(
    "pages_at, last, has", [([0, 1], [0], False), ([0, 1], [3], True), ([0, 0, 2], [5, 0], True), ([2, 2], [7], False)]
)
def test_a_page_without_tokens_is_no_context(pages_at, last, has):
    assert dcp_lse_base.Step([0, 2], pages_at, last).has_tokens is has


def test_up_to_013_the_last_page_lengths_begin_with_the_decodes():
    def plan(self, qo_indptr_cpu, paged_kv_indptr_cpu, paged_kv_last_page_len_cpu, prefill_start):
        return None

    wrapper, told = SimpleNamespace(), (cumulative([2]), cumulative([3]), torch.tensor([7, 8, 3]))
    one_call.run(target("plan"), plan, state_of(), wrapper, *told, prefill_start=2)
    assert getattr(wrapper, dcp_lse_base._STEP) == dcp_lse_base.Step([0, 2], [0, 3], [3])


@pytest.mark.parametrize("attribute", ["_window_left", "_logits_soft_cap"])
def test_other_attention_is_not_judged(attribute):
    rank = Rank(0.12)
    for kernel in (rank.wrapper._context, rank.wrapper._new_tokens):
        setattr(kernel, attribute, 30)
    rank.run()
    rank.run()
    assert [path[-1] for path in rank.state.observations] == ["with a window or a soft cap"] * 2  # which is said once
    assert rank.state.counters.corrections == 0 and rank.state.armed and rank.state.state == "unknown source"


def test_an_error_of_ours_disarms_and_the_engine_goes_on():
    rank = Rank(0.12)
    del rank.wrapper._new_tokens._sm_scale
    rank.wrapper._new_tokens.run = lambda *args, **kwargs: (rank.q, torch.full((sum(NEW), HEADS), 3.0))
    rank.run()
    assert rank.state.state == "failed" and "_sm_scale" in rank.state.reason and not rank.state.armed
    assert (rank.run()[1] == 3).all()


def test_an_error_of_the_engine_stays_its_own():
    rank = Rank(0.12)

    def broken(*args, **kwargs):
        raise RuntimeError("the engine's")

    rank.wrapper._context.run = broken
    with pytest.raises(RuntimeError, match="the engine's"):
        rank.run()
    assert rank.state.armed


def test_another_fix_on_the_same_target_leaves_the_engine_to_itself():
    rank = Rank(0.12)
    standing = WrappedTarget.of(vars(type(rank.wrapper))["run"])
    standing.remove(rank.state)
    standing.add(state_of(), lambda call, instance: call()).add(rank.state, dcp_lse_base.run, dcp_lse_base.unsettled)
    rank.run()
    assert not rank.state.observations and rank.state.armed
    assert type(standing.wrapped) is FunctionType


DCP_HEAD = """
import torch
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm import dcp_prefill
from attnfix.patches.vllm.lse_log_base.proof import Proof

proof = Proof()
proof.prepare()
backend = proof.engine[dcp_prefill.BACKEND]
reads = []

class OnGpu(torch.Tensor):
    "A GPU's: the host waits to read it."
    def tolist(self):
        reads.append("tolist")
        return self.as_subclass(torch.Tensor).tolist()

class Watched(emulators.PagedWrapper):
    "The stand-in, whose buffers wait when somebody else reads them on the host."
    running = False
    def run(self, *args, **kwargs):
        self.running = True
        try:
            return super().run(*args, **kwargs)
        finally:
            self.running = False
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return value.as_subclass(OnGpu) if name.endswith("_buf") and not self.running else value

def step(context, dtype="bfloat16", new=(5, 2, 6, 3)):
    dcp_prefill.use(backend, 2)
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda space, layout: Watched(2, layout)
    before = len(reads)
    out, reference = dcp_prefill.outputs(backend, 5, context, new, "NHD", dtype)
    return observe(out, reference).error, len(reads) - before

def state():
    import attnfix
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.lse-log-base")
    return row["state"], row["counters"]["corrections"] > 0
"""


@pytest.mark.parametrize("release", ["0.11.2", "0.18.0", "0.28.0"])
def test_fresh_prompts_never_wait_for_the_gpu(engine_fork, release):
    """Until context is seen, each step of each layer is told from the plan on the host; then from one row, once."""
    code = DCP_HEAD + "answer([[step((0, 0, 0, 0)) for _ in range(2)], [step((37, 1, 33, 48)) for _ in range(2)], state()])"
    fresh, cached, state = engine_fork("vllm", release).evaluate(code)
    assert [waits for _, waits in fresh] == [0, 0]
    assert max(error for error, _ in [*fresh, *cached]) < 0.01
    assert [waits for _, waits in cached] == [0, 0] and state == ["effective", True]


@pytest.mark.parametrize("release", ["0.11.2", "0.19.1"])
def test_too_few_new_tokens_go_by_the_context(engine_fork, release):
    """Of two keys the LSE can be too near to 0 to tell its base by: then the context's says it, and both are converted."""
    code = DCP_HEAD + (
        "from attnfix.compat.arming.wrapper import WrappedTarget\n"
        "wrapper = WrappedTarget.of(vars(backend.BatchDCPPrefillWrapper)['run'])\n"
        "errors = []\n"
        "for seed in 10, 12, 13, 24:\n"
        "    link, = wrapper.links\n"
        "    link.state.observations.clear()  # as in a process that has seen nothing yet\n"
        "    dcp_prefill.use(backend, 2)\n"
        "    seen = dcp_prefill.outputs(backend, seed, (37, 1, 33, 48), (2, 2, 2, 2), 'NHD', 'bfloat16')\n"
        "    errors.append(observe(*seen).error)\n"
        "answer(errors)"
    )
    assert max(engine_fork("vllm", release).evaluate(code)) < 0.01


DCP_HALVES = """
from attnfix.patches.vllm.shared import dcp_lse_base

def layer(context, bases=BASES):
    dcp_prefill.use(backend, 2)
    backend.BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: emulators.RaggedWrapper(bases[0])
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda space, layout: emulators.PagedWrapper(bases[1], layout)
    one = observe(*dcp_prefill.outputs(backend, 5, context, (5, 2, 6, 3), "NHD", "bfloat16"))
    return [one.error, one.bits]

for name in UNSEEN:
    setattr(dcp_lse_base, name, lambda *args: None)
answer([[layer((37, 1, 33, 48)) for _ in range(2)], state()])
"""


def halves(engine_fork, release, bases, unseen=(), **environment):
    code = f"BASES, UNSEEN = {bases!r}, {unseen!r}\n{DCP_HEAD}{DCP_HALVES}"
    return engine_fork("vllm", release).evaluate(code, **environment)


@pytest.mark.parametrize("release", ["0.11.2", "0.18.0"])
@pytest.mark.parametrize("bases", [(2, 10), (10, 2)])
def test_under_dcp_a_half_of_neither_base_keeps_the_other_as_it_is(engine_fork, release, bases):
    (_, (_, stock)), _ = halves(engine_fork, release, bases, ATTNFIX="0")
    (_, (_, fixed)), (state, _) = halves(engine_fork, release, bases)
    assert state == "unknown source" and fixed == stock  # in the first layer one half may have come and gone


@pytest.mark.parametrize("unseen", ["context_row", "new_tokens_row"])
def test_a_half_that_cannot_be_seen_goes_by_the_other(engine_fork, unseen):
    (_, second), state = halves(engine_fork, "0.18.0", (2, 2), [unseen])
    assert second[0] < 0.01 and state == ["effective", True]


CAPPED = """
def capped(cls):
    "The stand-in, planned with a soft cap."
    class Capped(cls):
        def plan(self, *args, **options):
            super().plan(*args, **options)
            self._logits_soft_cap = 30.0
    return Capped

def layer():
    backend.BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: capped(emulators.RaggedWrapper)(2)
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda space, layout: capped(emulators.PagedWrapper)(2, layout)
    return observe(*dcp_prefill.outputs(backend, 5, (37, 1, 33, 48), (5, 2, 6, 3), "NHD", "bfloat16")).bits
"""


@pytest.mark.parametrize("release", ["0.11.2", "0.28.0"])
def test_a_soft_cap_is_left_alone_aloud(engine_fork, release):
    """Told from the plan, once: later layers are the engine's own, without a twin of its code around them."""
    code = DCP_HEAD + CAPPED + (
        "from attnfix.patches.vllm.shared import dcp_lse_base\n"
        "twins, rebound = [], dcp_lse_base.rebound\n"
        "dcp_lse_base.rebound = lambda *args, **names: twins.append(names) or rebound(*args, **names)\n"
        "answer([layer(), state(), len(twins)])"
    )  # fmt: skip
    stock = engine_fork("vllm", release).evaluate(DCP_HEAD + CAPPED + "answer(layer())", ATTNFIX="0")
    assert engine_fork("vllm", release).evaluate(code) == [stock, ["unknown source", False], 0]


#: New tokens and context through kernels of these bases; says the output's error and bits, and what became of the fix
MLA_HALVES = """
import math, sys
from attnfix.patches.shared import lse_base

def hide(part, real=lse_base.one_row):
    "No row of this part can be judged."
    def one_row(q, k, lse, q_at, kv_at, scaling):
        return None if part == ("new" if q_at == kv_at else "context") else real(q, k, lse, q_at, kv_at, scaling)
    lse_base.one_row = one_row

import attnfix
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

mla = MlaPrefill()
mla.prepare()
mla.use()
import flashinfer.prefill
new_tokens, context = (emulators.TrtllmRaggedAttention(base) for base in BASES)
flashinfer.prefill.trtllm_ragged_attention_deepseek = lambda *args, is_causal, **kwargs: (
    new_tokens if is_causal else context)(*args, is_causal=is_causal, **kwargs)
hide(UNSEEN)
seen = []
for _ in range(2):  # two layers
    one = observe(*mla.outputs(20, Batch((70, 65), (23, 12)), ranks=(1,)))
    seen.append([one.error, one.bits])
row = next(row for row in attnfix.status() if row["fix"] == "vllm.lse-log-base")
answer([seen, row["state"], row["reason"]])
"""


def ran(engine_fork, bases, unseen="", **environment):
    return engine_fork("vllm", "0.25.1").evaluate(f"BASES, UNSEEN = {bases!r}, {unseen!r}\n{MLA_HALVES}", **environment)


@pytest.mark.parametrize("bases", [(2, 10), (10, 2)])
def test_a_half_of_neither_base_keeps_the_other_as_it_is(engine_fork, bases):
    (stock, *_), (fixed, state, reason) = ran(engine_fork, bases, ATTNFIX="0"), ran(engine_fork, bases)
    assert state == "unknown source" and "neither base" in reason
    assert fixed[1] == stock[1]
    assert fixed[0][0] == pytest.approx(stock[0][0], rel=1e-3)  # in the first layer one half may have come and gone


@pytest.mark.parametrize("unseen", ["new", "context"])
def test_a_half_that_cannot_be_judged_goes_by_the_other(engine_fork, unseen):
    """In the first layer, too: what went before to the merge is converted when the other half is seen."""
    seen, state, _ = ran(engine_fork, (2, 2), unseen)
    assert state == "effective" and max(error for error, _ in seen) < 0.01


MLA_HEAD = """
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill, uninitialised

mla = MlaPrefill()
mla.prepare()
NEW = (23, 12, 24, 15)
UNEQUAL, FRESH, NOT_FIRST = Batch((70, 20, 0, 0), NEW), Batch((70, 65, 0, 0), NEW, decodes=2), Batch((0, 70, 0, 65), NEW)

def run(batch, backend="trtllm_ragged"):
    mla.use(lse_base=2)
    with uninitialised(7.0):
        return observe(*mla.outputs(5, batch, backend)).error

def states(*fixes):
    import attnfix
    found = {row["fix"]: (row["state"], row["counters"]["corrections"] > 0) for row in attnfix.status()}
    return [found[f"vllm.{fix}"] for fix in fixes]
"""
ON = {"ATTNFIX_VLLM_PREFILL_CONTEXT_MERGE": "1", "ATTNFIX_VLLM_SKIP_CONTEXT_ZERO_FILL": "1"}
DONE = ["effective", True]


@pytest.mark.parametrize("release", ["0.14.1", "0.19.1"])
def test_with_the_final_merge_that_skips_prefixes(engine_fork, release):
    """It hangs a number on the LSE, and neutralises rows before the conversion."""
    code = MLA_HEAD + (
        "errors = [run(batch) for batch in (UNEQUAL, FRESH, NOT_FIRST)]\n"
        "answer([max(errors), states('lse-log-base', 'prefill-context-merge', 'skip-context-zero-fill')])"
    )
    worst, states = engine_fork("vllm", release).evaluate(code, **ON)
    assert worst < 0.01 and states == [DONE] * 3


@pytest.mark.parametrize("release", ["0.20.2", "0.25.1"])
def test_with_rows_that_are_neutralised_and_an_order_that_is_wrong(engine_fork, release):
    code = MLA_HEAD + (
        "errors = [run(UNEQUAL), run(NOT_FIRST), run(FRESH, 'fi')]\n"
        "answer([max(errors), states('lse-log-base', 'empty-context-chunks', 'mla-context-order')])"
    )
    worst, states = engine_fork("vllm", release).evaluate(code)
    assert worst < 0.01 and states == [DONE] * 3
