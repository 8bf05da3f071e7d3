"""sglang.mha-draft-extend-routing without an engine: which batch the engine's function sees, and what is recognised."""

from __future__ import annotations

import ast
from enum import IntEnum, auto
from types import SimpleNamespace

import one_call
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from no_sync import NoSync

from attnfix.compat.digest import digest, find
from attnfix.patches.sglang.mha_draft_extend_routing import structure, wrap


class Mode(IntEnum):
    """As the engine's own: an IntEnum with predicates."""

    EXTEND = auto()
    DECODE = auto()
    IDLE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND = auto()
    DRAFT_EXTEND_V2 = auto()

    def is_target_verify(self):
        return self == Mode.TARGET_VERIFY

    def is_draft_extend_v2(self):
        return self == Mode.DRAFT_EXTEND_V2


class Wrapped:
    """The engine's function: notes the batch it gets, and what its caller sees in the caller's own meanwhile."""

    def __init__(self, own, error=None):
        self.own, self.error, self.corrections = own, error, 0

    def __call__(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        self.batch, self.rest = forward_batch, (q, k, v, layer, save_kv_cache, kwargs)
        self.own_mode = self.own.forward_mode
        if self.error:
            raise self.error
        return "out"

    def corrected(self, rows=0):
        self.corrections += 1


def batch_of(mode):
    return SimpleNamespace(forward_mode=mode, seq_lens=torch.tensor([3, 5]), out_cache_loc=torch.arange(4), spec_info=object())


def call(wrapped, batch):
    return one_call.corrected(wrap.forward_extend, wrapped, None, ("q", "k", "v", "layer", batch, False), {"sinks": 1})


@given(st.sampled_from(Mode))
def test_one_mode_is_seen_as_plain_extend_and_the_callers_batch_keeps_its_own(mode):
    batch = batch_of(mode)
    before = dict(vars(batch))
    wrapped = Wrapped(batch)
    with NoSync():
        assert call(wrapped, batch) == "out"
    assert wrapped.rest == ("q", "k", "v", "layer", False, {"sinks": 1})
    assert wrapped.own_mode is batch.forward_mode is mode
    assert vars(batch).keys() == before.keys() and all(vars(batch)[name] is value for name, value in before.items())
    if mode is not Mode.DRAFT_EXTEND_V2:
        assert wrapped.batch is batch and wrapped.corrections == 0
        return
    assert wrapped.batch.forward_mode is Mode.EXTEND and wrapped.corrections == 1
    others = before.keys() - {"forward_mode"}
    assert all(getattr(wrapped.batch, name) is before[name] for name in others), "tensors are shared, not copied"


def test_an_error_of_the_engine_passes_and_counts_nothing():
    batch = batch_of(Mode.DRAFT_EXTEND_V2)
    wrapped = Wrapped(batch, KeyError("engine"))
    with pytest.raises(KeyError, match="engine"):
        call(wrapped, batch)
    assert wrapped.corrections == 0 and batch.forward_mode is Mode.DRAFT_EXTEND_V2


# Structure, on a small backend of our own

BACKEND = """
class TRTLLMHAAttnBackend(Base):
    def init_forward_metadata(self, forward_batch):
        self.forward_metadata = forward_batch.seq_lens

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        scale = layer.scaling
        page_table = self.page_table(layer)
        BEFORE
        if TEST:
            o = decode(q, page_table, scale)
        ELSE
        else:
            o = context(q, page_table, scale)
        return o.view(-1)
"""
MODES = "class ForwardMode(IntEnum):\n    pass\n"
METADATA = "class TRTLLMMHAMetadata:\n    max_seq_len_q = 1\n"
IMPORT = "from modes import ForwardMode\n"
M = "forward_batch.forward_mode"
VERIFY, V2 = f"{M}.is_target_verify()", f"{M}.is_draft_extend_v2()"


def backend(test, before="pass", orelse=""):
    lines = BACKEND.replace("TEST", test).replace("BEFORE", before).replace("ELSE", orelse)
    return "\n".join(line for line in lines.splitlines() if line.strip() not in ("", "pass"))


VARIABLE = "class EnvField:\n    def get(self):\n        return self.parse(1)\n"


def defined(place, text):
    return find(ast.parse(text), place.partition(":")[2])


@pytest.fixture
def recognise(monkeypatch):
    """`recognise(source of the backend, of the rest)` where our small backend is the release."""
    rest = dict(zip(structure.REST, (METADATA, IMPORT, MODES, VARIABLE)))
    monkeypatch.setattr(structure, "HEALTHY", {digest(ast.parse(backend(VERIFY)).body[0]): "1.0"})
    monkeypatch.setattr(structure, "REST", {place: (digest(defined(place, text)),) for place, text in rest.items()})

    def run(source, **other):
        sources = {**rest, structure.BACKEND: source, **other}
        return structure.recognise(lambda place: defined(place, sources[place]))

    return run


FAULTS = {
    "or": (f"{VERIFY} or {V2}",),
    "swapped": (f"{V2} or {VERIFY}",),
    "in": (f"{M} in (ForwardMode.DRAFT_EXTEND_V2, ForwardMode.TARGET_VERIFY)",),
    "==": (f"{VERIFY} or {M} == ForwardMode.DRAFT_EXTEND_V2",),
    "or in": (f"{VERIFY} or {M} in (ForwardMode.DRAFT_EXTEND_V2,)",),
    "twice": (f"{VERIFY} or {V2} or {VERIFY}",),
    "local": ("fixed", f"fixed = {VERIFY} or {V2}"),
    "half local": (f"{VERIFY} or late", f"late = {V2}"),
    "mode": ("mode.is_target_verify() or mode.is_draft_extend_v2()", f"mode = {M}"),
    "both": ("fixed", f"mode = {M}\n        fixed = mode.is_draft_extend_v2() or {VERIFY}"),
    "nested": (VERIFY, "pass", f"elif {V2}:\n            o = decode(q, page_table, scale)"),
}
OTHERS = {
    "the release": (VERIFY,),
    "v2 alone": (V2,),
    "and": (f"{VERIFY} and {V2}",),
    "and more": (f"({VERIFY} or {V2}) and self.flag",),
    "not": (f"not ({VERIFY} or {V2})",),
    "a third mode": (f"{VERIFY} or {V2} or {M} == ForwardMode.DRAFT_EXTEND",),
    "a third in the tuple": (f"{M} in (ForwardMode.DRAFT_EXTEND_V2, ForwardMode.TARGET_VERIFY, ForwardMode.EXTEND)",),
    "v1, too": (f"{VERIFY} or {M}.is_draft_extend(include_v2=True)",),
    "an argument": (f"{VERIFY} or {M}.is_draft_extend_v2(self)",),
    "another batch": (f"{VERIFY} or self.forward_batch.forward_mode.is_draft_extend_v2()",),
    "another enumeration": (f"{VERIFY} or {M} == Mode.DRAFT_EXTEND_V2",),
    "!=": (f"{VERIFY} or {M} != ForwardMode.DRAFT_EXTEND_V2",),
    "not in": (f"{M} not in (ForwardMode.DRAFT_EXTEND_V2, ForwardMode.TARGET_VERIFY)",),
    "chained": (f"{M} == ForwardMode.DRAFT_EXTEND_V2 == ForwardMode.TARGET_VERIFY",),
    "a local bound twice": ("fixed", f"fixed = {V2}\n        fixed = {VERIFY} or {V2}"),
    "a local changed": ("fixed", f"fixed = {VERIFY} or {V2}\n        fixed &= self.flag"),
    "a local read elsewhere": ("fixed", f"fixed = {VERIFY} or {V2}\n        log(fixed)"),
    "a local that shadows": ("scale", f"scale = {VERIFY} or {V2}"),
    "a parameter bound anew": ("layer", f"layer = {VERIFY} or {V2}"),
    "the batch bound anew": (f"forward_batch.is_target_verify() or {V2}", f"forward_batch = {M}"),
    "a truthy mode": (f"mode or {VERIFY} or {V2}", f"mode = {M}"),
    "an unknown local": (f"{VERIFY} or late",),
    "a local of two names": ("one", f"one = two = {VERIFY} or {V2}"),
    "nested, other arguments": (VERIFY, "pass", f"elif {V2}:\n            o = decode(q, page_table, 2 * scale)"),
    "nested, one more": (VERIFY, "pass", f"elif {V2}:\n            o = decode(q, page_table, scale)\n            o = 2 * o"),
    "something before": (f"{VERIFY} or {V2}", "layer = self.layer"),
    "a second test": (f"{VERIFY} or {V2}", f"if {VERIFY} or {V2}:\n            scale = 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_recognised_in_every_known_spelling(recognise, name):
    source = backend(*FAULTS[name])
    assert recognise(source) == "the backend of 1.0, but DRAFT_EXTEND_V2 goes to the decode kernel"


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_not(recognise, name):
    assert recognise(backend(*OTHERS[name])) is None


@pytest.mark.parametrize("place", structure.REST)
def test_the_rest_must_be_known_too(recognise, place):
    source = backend(*FAULTS["or"])
    assert recognise(source)
    assert recognise(source, **{place: "other = 1"}) is None  # not there
    known = dict(zip(structure.REST, (METADATA, IMPORT.replace("modes", "others"), MODES, VARIABLE)))[place]
    assert recognise(source, **{place: known.replace("1", "2").replace("IntEnum", "Enum")}) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.replace("class TRTLLMHAAttnBackend(Base)", "class TRTLLMHAAttnBackend(Other)"),
        lambda source: source.replace("class TRT", "@register\nclass TRT"),
        lambda source: source.replace("    def forward_extend", "    @graph\n    def forward_extend"),
        lambda source: source.replace("    def forward_extend", "    async def forward_extend"),
        lambda source: source + "\n    forward_extend = other",
        lambda source: source + "\n    def forward_extend(self, *args):\n        return None",
        lambda source: source + "\nTRTLLMHAAttnBackend = patched(TRTLLMHAAttnBackend)",
        lambda source: source.replace("seq_lens", "extend_seq_lens"),
        lambda source: source.replace("class TRTLLMHAAttnBackend(Base):", "def TRTLLMHAAttnBackend():"),
        lambda source: "",
    ],
)
def test_the_whole_class_must_be_known(recognise, change):
    source = backend(*FAULTS["or"])
    assert recognise(source) and recognise(change(source)) is None


def test_the_source_that_is_looked_at_stays_as_it_is():
    tree = ast.parse(backend(*FAULTS["both"])).body[0]
    before = digest(tree)
    structure._repaired(tree)
    assert digest(tree) == before
