"""Rows of sglang.mamba-float16-conv for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Nemotron", "h100", SGL + "--dtype float16", HIT, "another dtype: on (--dtype float16"),
    ("0.5.23", "Nemotron", "h100", SGL + "--dtype half", HIT, "--dtype half"),
    ("0.5.23", "Nemotron", "h100", SGL + "--dtype bfloat16", NOT_HIT, "another dtype: off"),
    ("0.5.23", "Nemotron", "h100", "SGLANG_MAMBA_CONV_DTYPE=float16 " + SGL + "--dtype float16", NOT_HIT, "another dtype: off"),
    ("0.5.23", "Nemotron", "h100", "SGLANG_MAMBA_CONV_DTYPE=float16 " + SGL + "--dtype bfloat16", HIT,
     "SGLANG_MAMBA_CONV_DTYPE: float16"),
    ("0.5.23", "Nemotron", "h100", SGL, POSSIBLE, "--dtype auto"),
    ("0.5.23", "Nemotron-bf16", "h100", SGL, NOT_HIT, "config.json says bfloat16"),
    ("0.5.23", "Nemotron", "h100", SGL + "--dtype float16 --disable-radix-cache", NOT_HIT, "radix"),
    ("0.5.23", "Next", "h100", SGL + "--dtype float16", NOT_HIT, "Mamba2 layers: off"),
    ("0.5.23", "Nemotron", "h100", None, POSSIBLE, "needs the launch command"),
    ("0.5.23", None, "h100", SGL, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"),
     "convolution states of another dtype": (("on",), "off")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "_converting_tensor.ConvertingTensor.__setitem__": "torch's own assignment, of values that are converted as torch "
    "converts them in every other place",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "model": "hybrid",
    "mamba-radix-cache-strategy": "extra_buffer",
    "disable-radix-cache": False,
    "dtype": "float16",
    "mamba-conv-dtype": "default",
}
RUN_AS_IT_IS = "it runs the mixer as it is, on the same states as a tensor that converts what is assigned to it"
