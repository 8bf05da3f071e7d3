"""Stand-ins for packages that the hybrid backends bring in and that need a GPU: importing this module puts them in place."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class NotHere:
    """A class of a package that is not installed: it can be named, not made."""

    def __init__(self, *_: Any, **__: Any):
        raise RuntimeError("what a package that is not installed would have was used")


# package that has them -> module -> names
_TAKEN: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "vllm.model_executor.layers.layernorm": ("RMSNorm", "GemmaRMSNorm"),
        "vllm.model_executor.layers.activation": ("GeluAndMul", "SiluAndMul"),
    },
    "cuda": {"sglang.jit_kernel.cutedsl_gdn": ("cutedsl_fused_sigmoid_gating_delta_rule_update",)},  # 0.5.8 imports it
    "cutlass": {"sglang.jit_kernel.dsa.cutedsl_paged_mqa_logits": ("CuteDSLPagedMQALogitsRunner", "pick_dsl_expand")},
}
for _package, _parts in _TAKEN.items():
    for _name, _names in _parts.items() if importlib.util.find_spec(_package) is None else ():
        _module = ModuleType(_name)
        vars(_module).update(dict.fromkeys(_names, NotHere))
        sys.modules.setdefault(_name, _module)
