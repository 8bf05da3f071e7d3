"""The base of a log-sum-exp belongs to the attention kernel that returns it: seen at work, never assumed.

At the first call of a kernel path in a process, one row of one head is computed again in fp32 from its own query and keys. What
it shows holds for the path from then on: base 2 is brought to the natural base that the engine merges with, anything else is
left alone. Later calls cost one look-up and, where needed, one launch over the LSE. A row that shows nothing is followed by
another, but not for ever. Kernels write base 2 because their softmax works with exp2; later FlashInfer returns the natural base
on request.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from attnfix.compat.status.fix_state import KernelObservation

if TYPE_CHECKING:
    from attnfix.compat.arming.wrapper import Correction

_LN2 = math.log(2)
#: A tensor that has this attribute has been brought to the natural base
NATURAL = "attnfix_natural_lse"
_FIRST = "attnfix_first_halves"
_ROWS = "attnfix_rows_that_show_nothing"
#: So many rows of a path are looked at; each costs a wait for the GPU
MOST_ROWS = 1024
_KEYS = 4096  # computed at a time: a copy of all keys in fp32 may not fit

#: The names that tell a kernel path from others
Path = tuple[Hashable, ...]
#: (what the kernel returned, what the row's natural LSE is), or None where the host knows that this call has no row to judge
Row = Callable[[], "tuple[float, float] | None"]
#: A row of which nothing can be told, though the host may have waited for it
NOTHING = (math.nan, math.nan)


def to_natural(target: Correction, path: Path, lse: Any, row: Row, other: Path | None = None, *, counted: bool = True) -> None:
    """Bring `lse` (float32, any shape and strides) to the natural base, in place, if the kernel behind `path` returns base 2.

    `row` is called at the path's first call outside CUDA graph capture: it waits for the GPU. A tensor is brought there once,
    however many targets it passes on its way to the merge. `other` is the path of the merge's other half: both are converted or
    none. A half that nobody can judge goes by the other, since one library makes both; one of neither base keeps the other
    as it is. So does one that is left alone because none of its rows showed anything. counted: whether it is a correction; in a
    merge with nothing it is none.
    """
    if path in target.left_alone or hasattr(lse, NATURAL):  # in this order: a tensor is slow to say no
        return
    mine = look(target, path, lse, row)
    theirs = target.observation(other) if other else None
    if mine is None and _rows(target).get(path, 0) >= MOST_ROWS:
        mine = _unseen_for_good(target, path, theirs)
    seen = mine or theirs
    if other and mine and mine.needed is None:
        _leave(target, other)
    elif mine and theirs and theirs.needed is None:
        _leave(target, path)
    elif seen and seen.needed:
        _convert(target, lse, counted)
        if other and theirs is None and (first := _first_half(target, other)) is not None:
            _convert(target, first, counted)
    if other and theirs is None:
        vars(target.state).setdefault(_FIRST, {})[path] = weakref.ref(lse)


def _unseen_for_good(target: Correction, path: Path, theirs: KernelObservation | None) -> KernelObservation:
    """What holds for a path of which enough was looked at in vain."""
    what = f"{MOST_ROWS} rows told no base, {f'as its other half: {theirs.what}' if theirs else 'left so'}"
    target.observe(path, observation := KernelObservation(what, theirs and theirs.needed))
    return observation


def _rows(target: Correction) -> dict[Path, int]:
    """How many rows of a path were looked at in vain."""
    return vars(target.state).setdefault(_ROWS, {})


def _convert(target: Correction, lse: Any, counted: bool) -> None:
    if not hasattr(lse, NATURAL):
        scale(lse)
        setattr(lse, NATURAL, True)
        if counted:
            target.corrected()


def _leave(target: Correction, path: Path) -> None:
    """The half behind `path` stays as its kernel returns it from now on, and in this merge, too."""
    if (found := target.observation(path)) and found.needed:
        target.observe(path, KernelObservation(f"{found.what}, left so: its other half is in neither base", None))
    if (first := _first_half(target, path)) is not None and hasattr(first, NATURAL):
        first.div_(_LN2)
        delattr(first, NATURAL)


def _first_half(target: Correction, path: Path) -> Any:
    """The LSE that went before to this merge, while its other half was not seen yet."""
    reference = vars(target.state).get(_FIRST, {}).pop(path, None)
    return reference and reference()


def scale(lse: Any) -> None:
    """From base 2 to base e, in place."""
    lse.mul_(_LN2)


def one_row(q: Any, k: Any, lse: Any, q_at: Sequence[int], kv_at: Sequence[int], scaling: float) -> tuple[float, float]:
    """(returned, natural) of the last query row of a request, in the head where the returned LSE is largest.

    q: [tokens, heads, d]; k: [kv, KV heads, d]; lse: [tokens, heads]; q_at, kv_at: where each request begins, and the last
    one's end. The last row sees every key of its request, with a causal mask, too.
    """
    import torch

    found = a_request(q_at, kv_at)
    if found is None:
        return NOTHING
    row, start, stop = q_at[found + 1] - 1, kv_at[found], kv_at[found + 1]
    head = int(lse[row].abs().argmax())
    keys = k[start:stop, head * k.shape[1] // q.shape[1]]
    query = q[row, head].float()
    scores = torch.cat([some.float() @ query for some in keys.split(_KEYS)]) * scaling
    return float(lse[row, head]), float(scores.logsumexp(0))


def a_request(q_at: Sequence[int], kv_at: Sequence[int]) -> int | None:
    """Which request to look at: one with 16 keys or few more; None if none has both rows and keys."""
    has_both = [b for b in range(len(q_at) - 1) if q_at[b] < q_at[b + 1] and kv_at[b] < kv_at[b + 1]]
    lens = {b: kv_at[b + 1] - kv_at[b] for b in has_both}
    return min(has_both, key=lambda b: (lens[b] < 16, abs(lens[b] - 16)), default=None)


def look(target: Correction, path: Path, lse: Any, row: Row) -> KernelObservation | None:
    """What the path's kernel is seen to return; None while nothing can be told."""
    if known := target.observation(path):
        return known
    import torch

    rows = _rows(target)
    if rows.get(path, 0) >= MOST_ROWS or (lse.is_cuda and torch.cuda.is_current_stream_capturing()) or not (seen := row()):
        return None
    if not all(map(math.isfinite, seen)) or abs(seen[1]) <= 1:
        rows[path] = rows.get(path, 0) + 1
        return None
    observation = judge(*seen)
    target.observe(path, observation._replace(what=f"{observation.what} ({_flashinfer()})"))
    return observation


def judge(returned: float, natural: float) -> KernelObservation:
    """The base of a returned LSE whose natural value is known and further than 1 from 0."""
    near = abs(natural) * (1 / _LN2 - 1) / 4  # a quarter of the way from one base to the other
    if abs(returned - natural / _LN2) < near:
        return KernelObservation("LSE in base 2", True)
    if abs(returned - natural) < near:
        return KernelObservation("LSE in base e", False)
    return KernelObservation(f"LSE in neither base: {returned:.4g} where {natural:.4g} is natural", None)


def _flashinfer() -> str:
    from importlib.metadata import PackageNotFoundError, version

    module = sys.modules.get("flashinfer")
    try:
        return f"FlashInfer {getattr(module, '__version__', None) or version('flashinfer-python')}"
    except PackageNotFoundError:
        return "no FlashInfer"
