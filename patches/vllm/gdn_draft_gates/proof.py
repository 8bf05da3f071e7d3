"""Proof of vllm.gdn-draft-gates: verified drafts behind a decode without drafts, behind a short prompt, and between both.

Real: all of the lab's. Emulated: kernels, of which that of verified tokens reads gates from the front of what it gets. Spared:
verified requests in front of others, and alone.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.vllm.gated_delta import case, step, verify
from attnfix.patches.lab.vllm.gdn_layer import LAYERS, GatedDeltaLayer

from . import wrap

_TWO = step(a=20, b=9)


def _first(real: Any, gates: Any, places: Any) -> Any:
    return real(gates, places - places[0])


class Proof(GatedDeltaLayer):
    needs = " or ".join(
        f"{module}:{name}._forward_core: fused_sigmoid_gating_delta_rule_update" for module, name in LAYERS.items()
    )
    absent = "Gated DeltaNet's layers pick out the gates before they compute a step"
    bug = (
        case(_TWO, step(a=1, b=verify()), step(a=verify(), b=verify()), drafts=3),
        case(_TWO, step(c=4, a=verify(kept=2), b=verify()), step(a=verify(), c=1, b=verify()), drafts=2),
        case(step(a=6, b=2), step(a=verify(), c=2, b=verify()), step(c=1, a=verify(), b=verify(0)), drafts=1),
    )
    spared = (
        case(_TWO, step(a=verify(kept=1), b=verify(), c=7), step(b=verify(), c=verify(), a=1), drafts=3),
        case(_TWO, step(a=verify(kept=1), b=verify(1, 1)), step(a=1, b=1), step(a=verify(), b=verify()), drafts=2),
    )
    broken = {
        "the correction does nothing": (wrap.of_tokens, lambda real, gates, places: gates),
        "gates begin at the first token": (wrap.of_tokens, _first),
        "gates are in another order": (wrap.of_tokens, lambda real, gates, places: real(gates, places.flip(0))),
    }
