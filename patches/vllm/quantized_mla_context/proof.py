"""Proof of vllm.quantized-mla-context: MLA prefill with cached context, through a quantised kv_b_proj, on one rank and on two.

Spared: no quantisation, and a weight of FP8 that no kernel has repacked.
"""

import math
from importlib import import_module

from attnfix.patches.lab.proof import NoSuchPath, code_of
from attnfix.patches.lab.vllm.quantized import QuantizedProjection

from . import wrap


def _takes(dtype):
    return wrap, "input_dtype", lambda kv_b_proj, metadata, names: dtype and getattr(import_module("torch"), dtype)


def _on_the_layer(real, layer, dtype):
    """It shows its weight to the linear method, too."""
    import torch

    class OnTheLayer(real):  # type: ignore[valid-type, misc]
        def __call__(self, latent):
            parameters = layer._parameters
            former = parameters.pop("weight", None)
            layer.__dict__["weight"] = self.weight
            try:
                return layer(latent)
            except AttributeError:  # it has a dtype, and nothing else
                return torch.full((len(latent), layer.output_size), math.nan, dtype=latent.dtype), None
            finally:
                del layer.__dict__["weight"]
                if former is not None:
                    parameters["weight"] = former

    return OnTheLayer(layer, dtype)


class Proof(QuantizedProjection):
    bug = ("awq", "int32", "uint8")
    spared = ("plain", "float8_e4m3fn")
    broken = {
        "the correction does nothing": _takes(None),
        "the input takes the dtype of a packed weight": _takes("int32"),
        "the input takes another floating dtype": _takes("float16"),
        "the linear method is shown the dtype for a weight": (wrap.Projection, _on_the_layer),
    }

    def prepare(self):
        loop = code_of(self.mla.MLACommonImpl._compute_prefill_context)
        if not {"weight", "_get_kv_b_proj_input_dtype"} & set(loop.co_names):
            raise NoSuchPath("the context loop hands kv_b_proj what the cache holds, in no other dtype")
        super().prepare()
