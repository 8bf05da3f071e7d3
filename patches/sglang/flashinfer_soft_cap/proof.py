"""Proof of sglang.flashinfer-soft-cap: prefill and decode of a model whose scores have a soft cap.

Models have window layers or none. With them, prompts are within the window and nothing is cached: the rest of them is the
matter of sglang.flashinfer-swa-prefill. Spared: the same models without a cap.
"""

from attnfix.patches.lab.sglang.paged import FA3, WINDOW, FlashInfer, case, decode, launched, prefill

from . import wrap

CAP = 2.0  # the queries of the proof have scores of about 4
FRESH, CACHED = prefill((0, 0, 0), (WINDOW + 1, 4, 1)), prefill((30, 3, 0), (4, 2, 5))
DECODES = tuple(decode((30, 3, WINDOW, 12), graph=graph) for graph in (False, True))


def _cases(cap):
    return (
        case(FRESH, CACHED, *DECODES, window=None, soft_cap=cap),
        case(FRESH, *DECODES, decode((9,), graph=True), soft_cap=cap, kv_dtype="fp8_e4m3", page_size=4),
    )


class Proof(FlashInfer):
    bug, spared = _cases(CAP), _cases(0.0)
    around = {"`--attention-backend fa3` on Hopper": launched(bug, backend=FA3)}
    broken = {
        "the correction does nothing": (wrap.takes_a_cap, lambda real, wrapper: False),
        "a prefill's cached part is missed": (wrap.planned, lambda real, call, wrappers: real(call, wrappers[:1])),
        "a prefill's new part is missed": (
            wrap.planned,
            lambda real, call, wrappers: real(call, wrappers[-1:] if len(wrappers) > 1 else wrappers),
        ),
        "decode is missed": (wrap.planned, lambda real, call, wrappers: real(call, wrappers[1:] and wrappers)),
    }
