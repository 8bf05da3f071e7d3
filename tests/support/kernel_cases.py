"""Drawn inputs and float64 oracles for the kernel ops: the CPU tests and the GPU tests run the same cases.

A case is a few numbers and a seed, so that hypothesis can print and shrink it; tensors are made from it on any device.
Every output is poisoned before a run, and the memory around each strided view is checked afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# How a [tokens, heads, head_size] tensor lies in memory.
VALUE_LAYOUTS = ("plain", "padded", "misaligned", "odd pitch", "heads first", "strided dim", "dim before heads")
ALIGNED_LAYOUTS = ("plain", "padded", "heads first")  # rows that move 16 bytes at a time
LSE_LAYOUTS = ("plain", "transposed", "padded")
HEADS = (1, 2, 3, 8, 16)
HEAD_SIZES = (8, 16, 24, 64, 128, 192, 256, 512, 576)
INF = float("inf")


def values_view(layout: str, shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """An uninitialised [T, H, D] view of this layout inside a larger buffer (`._base` or itself)."""
    t, h, d = shape
    strides, offset = {
        "plain": ((h * d, d, 1), 0),
        "padded": ((h * (d + 64), d + 64, 1), 0),
        "misaligned": ((h * d, d, 1), 3),
        "odd pitch": ((h * (d + 1) + 1, d + 1, 1), 0),
        "heads first": ((d, t * d, 1), 0),
        "strided dim": ((h * d * 2, d * 2, 2), 1),
        "dim before heads": ((h * d, 1, h), 0),
    }[layout]
    return _view(shape, strides, offset, dtype, device)


def lse_view(layout: str, heads: int, tokens: int, device: str) -> torch.Tensor:
    """An uninitialised float32 [H, T] view."""
    strides, offset = {"plain": ((tokens, 1), 0), "transposed": ((1, heads), 0), "padded": ((tokens + 5, 1), 2)}[layout]
    return _view((heads, tokens), strides, offset, torch.float32, device)


def _view(shape, strides, offset, dtype, device) -> torch.Tensor:
    size = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 7
    buffer = torch.empty(max(size, 8), dtype=torch.float32, device=device).normal_().to(dtype)
    return buffer.as_strided(shape, strides, offset)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bit pattern, so that NaN compares equal to the same NaN."""
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])


class Guard:
    """Remembers the memory around a view; `check` fails if anything but the allowed elements of the view changed.

    `neighbours` may be written, too: where they lie in the same memory, their elements are free.
    """

    def __init__(self, name: str, view: torch.Tensor, *neighbours: torch.Tensor) -> None:
        self.name, self.view, self.memory = name, view, _memory(view)
        self.neighbours = [one for one in neighbours if _memory(one).data_ptr() == self.memory.data_ptr()]
        self.before = self.memory.clone()

    def check(self, may_change: torch.Tensor | None = None) -> None:
        """`may_change`: bool, broadcastable to the view; None allows the whole view."""
        everything = torch.ones((), dtype=torch.bool, device=self.view.device)
        free = torch.zeros_like(self.memory, dtype=torch.bool)
        for view, allowed in [(self.view, everything if may_change is None else may_change)] + [
            (one, everything) for one in self.neighbours
        ]:
            size = view.element_size()
            strides, start = (*(size * step for step in view.stride()), 1), size * view.storage_offset()
            free.as_strided((*view.shape, size), strides, start).logical_or_(
                allowed.to(free.device).broadcast_to(view.shape)[..., None]
            )
        changed = (self.memory != self.before) & ~free
        assert not changed.any(), f"{self.name}: {int(changed.sum())} bytes changed that must not"


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Every byte of the memory that a tensor is a view of."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def poison_(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Large, NaN and infinite: whatever an op forgets to write shows."""
    if not tensor.numel():
        return
    pool = torch.tensor([1e4, -3e3, float("nan"), INF, -INF, 7.0]).to(tensor.dtype)
    # By bytes for FP8, which has few operators.
    picked = bits(pool)[torch.randint(len(pool), tensor.shape, generator=generator)].view(tensor.dtype)
    tensor.copy_(picked.to(tensor.device))


# ---- fixup_zero_kv_rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FixupCase:
    query_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    heads: int
    head_size: int
    dtype: torch.dtype
    layout: str
    lse_layout: str
    padding: int  # token rows past the last request
    cumulative: bool
    index_dtypes: tuple[torch.dtype, torch.dtype]
    index_step: int  # stride of the index tensors
    seed: int

    @property
    def tokens(self) -> int:
        return sum(self.query_lens) + self.padding


@st.composite
def fixup_cases(draw: st.DrawFn) -> FixupCase:
    requests = draw(st.integers(0, 12))
    lens = st.integers(0, 9)
    return FixupCase(
        query_lens=tuple(draw(st.lists(lens, min_size=requests, max_size=requests))),
        kv_lens=tuple(draw(st.lists(st.sampled_from((0, 0, 1, 5, 10_000)), min_size=requests, max_size=requests))),
        heads=draw(st.sampled_from(HEADS)),
        head_size=draw(st.sampled_from(HEAD_SIZES)),
        dtype=draw(st.sampled_from(DTYPES)),
        layout=draw(st.sampled_from(VALUE_LAYOUTS + ALIGNED_LAYOUTS)),
        lse_layout=draw(st.sampled_from(LSE_LAYOUTS)),
        padding=draw(st.sampled_from((0, 0, 1, 7))),
        cumulative=draw(st.booleans()),
        index_dtypes=draw(st.tuples(*[st.sampled_from((torch.int32, torch.int64))] * 2)),
        index_step=draw(st.sampled_from((1, 1, 2))),
        seed=draw(st.integers(0, 2**31)),
    )


def index_tensor(numbers: list[int], dtype: torch.dtype, step: int, device: str) -> torch.Tensor:
    spread = torch.full((len(numbers) * step,), -77, dtype=dtype)
    spread[::step] = torch.tensor(numbers, dtype=dtype)
    return spread.to(device)[::step]


def offsets(lens: tuple[int, ...]) -> list[int]:
    return [sum(lens[:i]) for i in range(len(lens) + 1)]


def run_fixup_case(case: FixupCase, op, device: str = "cpu") -> None:
    """Runs `op` on the case and fails unless exactly the rows without KV changed, to exactly 0 and -inf."""
    generator = torch.Generator().manual_seed(case.seed)
    out = values_view(case.layout, (case.tokens, case.heads, case.head_size), case.dtype, device)
    lse = lse_view(case.lse_layout, case.heads, case.tokens, device).t()
    poison_(out, generator)
    poison_(lse, generator)
    expected_out, expected_lse = out.clone(), lse.clone()
    at = offsets(case.query_lens)
    rows = torch.zeros(case.tokens, dtype=torch.bool)
    for b, kv_len in enumerate(case.kv_lens):
        if kv_len == 0:
            rows[at[b] : at[b + 1]] = True
    for token in rows.nonzero().flatten().tolist():
        expected_out[token] = 0
        expected_lse[token] = -INF
    guards = (Guard("out", out), rows[:, None, None]), (Guard("lse", lse), rows[:, None])

    def index(numbers: list[int], which: int) -> torch.Tensor:
        return index_tensor(numbers, case.index_dtypes[which], case.index_step, device)

    if case.cumulative:
        op(out, lse, None, index(at, 1), cum_kv_lens=index(offsets(case.kv_lens), 0))
    else:
        op(out, lse, index(list(case.kv_lens), 0), index(at, 1))
    assert torch.equal(bits(out), bits(expected_out))
    assert torch.equal(bits(lse), bits(expected_lse))
    for guard, may_change in guards:
        guard.check(may_change)


# ---- merge_attn_states --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MergeCase:
    tokens: int
    heads: int
    head_size: int
    dtype: torch.dtype
    layouts: tuple[str, str, str]  # output, prefix, suffix
    lse_layouts: tuple[str, str, str]
    in_place: str  # "", "prefix" or "suffix": what the output is
    context: str  # prefill_tokens_with_context: "none", "zero", "middle" or "all"
    with_lse: bool
    fp8: bool
    base2: bool
    kv_lens: tuple[int, ...] | None
    empty: float  # share of rows with an infinite LSE, per side
    spread: float  # of the finite LSEs
    seed: int

    @property
    def context_tokens(self) -> int | None:
        return {"none": None, "zero": 0, "middle": self.tokens // 2, "all": self.tokens}[self.context]


@st.composite
def merge_cases(draw: st.DrawFn) -> MergeCase:
    fp8 = draw(st.sampled_from((False, False, True)))
    base2 = draw(st.booleans())
    lens = st.lists(st.sampled_from((0, 0, 3, 4096)), min_size=0, max_size=6).map(tuple)
    # One unaligned tensor puts all on the scalar path: half the cases have none.
    layouts = st.sampled_from(draw(st.sampled_from((VALUE_LAYOUTS, ALIGNED_LAYOUTS))))
    return MergeCase(
        tokens=draw(st.integers(0, 33)),
        heads=draw(st.sampled_from(HEADS)),
        head_size=draw(st.sampled_from(HEAD_SIZES)),
        dtype=draw(st.sampled_from(DTYPES)),
        layouts=draw(st.tuples(*[layouts] * 3)),
        lse_layouts=draw(st.tuples(*[st.sampled_from(LSE_LAYOUTS)] * 3)),
        in_place="" if fp8 else draw(st.sampled_from(("", "", "prefix", "suffix"))),
        context=draw(st.sampled_from(("none", "none", "zero", "middle", "all"))),
        with_lse=draw(st.booleans()),
        fp8=fp8,
        base2=base2,
        kv_lens=draw(st.none() | lens),
        empty=draw(st.sampled_from((0.0, 0.3, 1.0))),
        spread=draw(st.sampled_from((0.0, 2.0, 30.0, 1000.0))),
        seed=draw(st.integers(0, 2**31)),
    )


@dataclass
class MergeInputs:
    """Tensors of a MergeCase on one device; `call` passes them to an op."""

    output: torch.Tensor
    prefix: torch.Tensor
    prefix_lse: torch.Tensor
    suffix: torch.Tensor
    suffix_lse: torch.Tensor
    output_lse: torch.Tensor | None
    context_tokens: int | None
    scale: torch.Tensor | None
    kv_lens: torch.Tensor | None
    cum_seq_lens: torch.Tensor | None
    base2: bool
    unread_prefix: torch.Tensor  # bool [T]: rows that the op must not read

    def call(self, op) -> None:
        op(
            *(self.output, self.prefix, self.prefix_lse, self.suffix, self.suffix_lse, self.output_lse),
            *(self.context_tokens, self.scale),
            kv_lens=self.kv_lens,
            cum_seq_lens=self.cum_seq_lens,
            lse_base="2" if self.base2 else "e",
        )


def merge_inputs(case: MergeCase, device: str = "cpu") -> MergeInputs:
    g = torch.Generator().manual_seed(case.seed)
    t, h = case.tokens, case.heads
    shape = (t, h, case.head_size)
    prefix, suffix = (values_view(layout, shape, case.dtype, device) for layout in case.layouts[1:])
    prefix_lse, suffix_lse = (lse_view(layout, h, t, device) for layout in case.lse_layouts[1:])
    output_lse = lse_view(case.lse_layouts[0], h, t, device) if case.with_lse else None

    unread = torch.zeros(t, dtype=torch.bool)
    if case.context_tokens is not None:
        unread[case.context_tokens :] = True
    cum = None
    if case.kv_lens is not None:
        # Request boundaries anywhere among the tokens, with a tail that belongs to no request.
        inner = torch.randint(0, t + 1, (len(case.kv_lens) + 1,), generator=g).sort().values
        cum = inner.tolist()
        for b, kv_len in enumerate(case.kv_lens):
            if kv_len == 0:
                unread[cum[b] : cum[b + 1]] = True

    for values, lse, side in ((prefix, prefix_lse, "prefix"), (suffix, suffix_lse, "suffix")):
        x = torch.randn(shape, generator=g).to(case.dtype)
        level = torch.randn((h, t), generator=g) * case.spread
        empty = torch.rand((h, t), generator=g) < case.empty
        level[empty] = torch.where(torch.rand((h, t), generator=g) < 0.5, INF, -INF)[empty]
        garbage = torch.empty_like(x)
        poison_(garbage, g)
        dropped = empty.t().clone()
        if side == "prefix":
            dropped |= unread[:, None]
            level[:, unread] = torch.tensor([float("nan"), INF, -INF])[torch.randint(3, (h, t), generator=g)][:, unread]
        x[dropped] = garbage[dropped]
        values.copy_(x)
        lse.copy_(level)

    output = {"prefix": prefix, "suffix": suffix}.get(case.in_place)
    if output is None:
        output = values_view(case.layouts[0], shape, torch.float8_e4m3fn if case.fp8 else case.dtype, device)
        poison_(output, g)
    if output_lse is not None:
        poison_(output_lse, g)
    return MergeInputs(
        *(output, prefix, prefix_lse, suffix, suffix_lse, output_lse, case.context_tokens),
        scale=torch.tensor([0.0123], device=device) if case.fp8 else None,
        kv_lens=None if cum is None else torch.tensor(case.kv_lens, dtype=torch.int32, device=device),
        cum_seq_lens=None if cum is None else torch.tensor(cum, dtype=torch.int32, device=device),
        base2=case.base2,
        unread_prefix=unread.to(device),
    )


@dataclass
class Expected:
    """Float64 results; `copied` says which rows must be bit-equal to a side: 1 prefix, 2 suffix, 0 neither."""

    out: torch.Tensor  # [T, H, D]
    magnitude: torch.Tensor  # of the sum's terms: what rounding is relative to
    lse: torch.Tensor  # [H, T], natural
    copied: torch.Tensor  # [T, H]
    prefix: torch.Tensor  # the inputs before the run, in their dtype
    suffix: torch.Tensor


def merge_oracle(m: MergeInputs) -> Expected:
    """Softmax merging written down once more, in float64 and by logaddexp."""
    unit = math.log(2) if m.base2 else 1.0
    n = m.output.shape[0] if m.context_tokens is None else m.context_tokens
    rest = torch.arange(m.output.shape[0], device=m.output.device) >= n
    x, s = m.prefix_lse.double() * unit, m.suffix_lse.double() * unit
    x = torch.where(torch.isinf(x) | m.unread_prefix, -INF, x)
    s = torch.where(torch.isinf(s) & ~rest, -INF, s)
    no_x, no_s = x == -INF, (s == -INF) & ~rest
    lse = torch.logaddexp(x, s)
    lse = torch.where(no_x, s, torch.where(no_s, x, lse))
    wx = torch.where(no_x, 0.0, torch.where(no_s, 1.0, torch.exp(x - lse))).t()[:, :, None]
    ws = torch.where(no_s, 0.0, torch.where(no_x, 1.0, torch.exp(s - lse))).t()[:, :, None]
    a = torch.where(wx == 0, 0.0, m.prefix.double() * wx)
    b = torch.where(ws == 0, 0.0, m.suffix.double() * ws)
    copied = (no_s & ~no_x).int() + 2 * (no_x & ~no_s).int()
    return Expected(a + b, a.abs() + b.abs(), lse, copied.t(), m.prefix.clone(), m.suffix.clone())


def check_merge(m: MergeInputs, e: Expected) -> None:
    """Fails unless the op's results in `m` are the expected ones: copies to the bit, sums to rounding."""
    side = torch.where((e.copied == 1)[:, :, None], e.prefix, e.suffix)
    copied = (e.copied > 0)[:, :, None].expand(e.out.shape)
    if m.scale is None:
        assert torch.equal(bits(m.output)[copied], bits(side)[copied]), "a copied row is not bit-equal"
        # One rounding to the output's format, and a few in float32 before it.
        bound = e.magnitude * (torch.finfo(m.output.dtype).eps / 2 + 1e-6) + torch.finfo(m.output.dtype).smallest_normal
        got, want = m.output.double(), e.out
    else:
        inverse = m.scale.reciprocal().double()
        got, want = m.output.float().double(), (torch.where(copied, side.double(), e.out) * inverse).clamp(-448, 448)
        bound = want.abs() * 2**-4 * 1.001 + 2**-10 * 1.001 + e.magnitude.nan_to_num(0, 0, 0) * inverse * 1e-6
        bound = bound.nan_to_num(448 * 2**-4, 448 * 2**-4)
        copied = torch.zeros_like(copied)
    wrong = ~((got - want).abs() <= bound) & ~(got.isnan() & want.isnan()) & ~copied
    assert not wrong.any(), f"{int(wrong.sum())} values differ by up to {(got - want).abs()[wrong].max()}"
    if m.output_lse is None:
        return
    rows = e.copied.t() == 1, e.copied.t() == 2
    if not m.base2:
        for mask, lse in zip(rows, (m.prefix_lse, m.suffix_lse), strict=True):
            assert torch.equal(bits(m.output_lse)[mask], bits(lse)[mask]), "a copied LSE is not bit-equal"
    got = m.output_lse.double()
    close = (got == e.lse) | ((got - e.lse).abs() <= e.lse.abs() * 3e-7 + 1e-6) | (got.isnan() & e.lse.isnan())
    assert close.all(), f"{int((~close).sum())} LSEs differ"


def run_merge_case(case: MergeCase, op, device: str = "cpu") -> None:
    m = merge_inputs(case, device)
    expected = merge_oracle(m)
    guards = [Guard("output", m.output)]
    if m.output_lse is not None:
        guards.append(Guard("output_lse", m.output_lse))
    untouched = {"prefix_lse": m.prefix_lse, "suffix_lse": m.suffix_lse}
    untouched |= {name: v for name, v in (("prefix", m.prefix), ("suffix", m.suffix)) if case.in_place != name}
    guards_of_inputs = [Guard(name, view) for name, view in untouched.items()]
    m.call(op)
    check_merge(m, expected)
    for guard in guards:
        guard.check()
    for guard in guards_of_inputs:
        guard.check(torch.zeros((), dtype=torch.bool))
