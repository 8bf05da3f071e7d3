"""Proof of vllm.int8-mla-context: MLA prefill with cached context, through a kv_b_proj of int8, on one rank and on two.

Spared: no quantisation, and a weight of int32, of uint8, of FP8.
"""

from importlib import import_module

from attnfix.patches.lab.proof import NoSuchPath
from attnfix.patches.lab.vllm.quantized import QuantizedProjection

from . import wrap


class Proof(QuantizedProjection):
    bug = ("int8",)
    spared = ("plain", "int32", "uint8", "float8_e4m3fn")
    broken = {
        "the correction does nothing": (wrap, "made_for", lambda kv_b_proj: import_module("torch").int8),
        "the input takes another floating dtype": (wrap, "made_for", lambda kv_b_proj: import_module("torch").float16),
    }

    def prepare(self):
        if not hasattr(self.mla, "_get_kv_b_proj_input_dtype"):
            raise NoSuchPath("the context loops ask the weight by themselves, which vllm.quantized-mla-context corrects")
        super().prepare()
