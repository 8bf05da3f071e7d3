"""Proof of sglang.flashinfer-swa-prefill: prefill of prompts longer than the window, and of short ones behind a cached prefix.

As released, of a multimodal model, in deterministic and in paged-only mode, and with a pool of the window layers' own.
Spared: prompts within the window, and decode steps.
"""

from dataclasses import replace
from typing import Any

from attnfix.patches.lab.sglang.paged import WINDOW, FlashInfer, case, decode, on_fa3, prefill

from . import wrap

#: Cached and new tokens of the requests of a batch
NOTHING_CACHED = (0, 0, 0), (20, 5, WINDOW + 1)
CACHED = (30, 3, 0), (4, 2, 1)
BOTH = (0, 25, 6, 12), (17, 12, 1, 10)
WITHIN = (0, 0, 0), (WINDOW + 1, 4, 1)
BATCHES = prefill(*NOTHING_CACHED), prefill(*CACHED), prefill(*BOTH, mode="MIXED")
CHUNKS = prefill((0,), (12,)), prefill((12,), (20,)), prefill((32,), (5,))
LAUNCHES: tuple[dict[str, Any], ...] = (
    {},
    {"modes": ("is_multimodal",), "page_size": 4},
    {"modes": ("enable_deterministic",), "kv_dtype": "fp8_e4m3"},
    {"modes": ("use_paged",)},
    {"pool": True},
)
_UPDATER = "FlashInferIndicesUpdaterPrefill"
_PLANS_WINDOWS = f"{_UPDATER}.call_begin_forward: window_left"  # from 0.5.16
_MISSES = wrap.ragged_misses


def _paged(of):
    return replace(of, launch=replace(of.launch, modes=(*of.launch.modes, "use_paged")), where=_PLANS_WINDOWS)


class Proof(FlashInfer):
    bug = tuple(case(*steps, **launch) for launch in LAUNCHES for steps in (BATCHES, CHUNKS))
    spared = (case(prefill(*WITHIN), decode((30, 3, WINDOW, 12)), prefill(*WITHIN)),)
    around = {
        "From 0.5.16 set `SGLANG_FLASHINFER_USE_PAGED=1`": {"bug": tuple(map(_paged, bug))},
        "On Hopper `--attention-backend fa3`, below 0.5.7 beside `--disable-hybrid-swa-memory`": on_fa3(bug),
    }  # fmt: skip
    broken = {
        "the correction does nothing": (wrap, "PLAIN", frozenset()),
        "long prompts are missed where nothing is cached": (
            _MISSES,
            lambda real, learnt, cached, new: any(cached) and real(learnt, cached, new),
        ),
        "only the first request is looked at": (
            _MISSES,
            lambda real, learnt, cached, new: real(learnt, cached[1:2], new[1:2]),
        ),
        "the ragged mode stays": (wrap.switch, lambda real, backend: "another_switch"),
        "the window is not planned": (wrap.with_window, lambda real, plan, window: plan),
        "batches of paged-only mode are missed": (wrap.paged_misses, lambda real, *batch: False),
        "short prompts with a prefix are missed": (_MISSES, lambda real, learnt, cached, new: real(learnt, [], new)),
    }
    broken_where = {
        "the window is not planned": f"no {_PLANS_WINDOWS}",
        "batches of paged-only mode are missed": f"no {_PLANS_WINDOWS}",
        "short prompts with a prefix are missed": f"no {_UPDATER}.update_sliding_window: extend_prefix_lens_cpu",
    }
