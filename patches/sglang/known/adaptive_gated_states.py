"""sglang.adaptive-gated-states, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.adaptive-gated-states",
    title="Hybrid models mix the states of requests when adaptive speculation changes its number of steps",
    symptom="With --speculative-adaptive, Qwen3-Next and Qwen3.5 answer garbage when several requests run.",
    symptoms=(GARBAGE, SPECULATION),
    releases=(">=0.5.11,<0.5.13",),
    code=("sglang.srt.layers.attention.fla.fused_sigmoid_gating_recurrent:fused_sigmoid_gating_delta_rule_update",),
    upstream=Upstream("sgl-project/sglang", pull=23331),
    hits=AllOf(
        Is("recurrent layers", "on"),
        Is("Mamba2 layers", "off"),
        Given("--speculative-adaptive"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("speculative topk", 1),
        Is("--enable-dp-attention", "off"),
        AnyOf(Since("0.5.12"), Given("--disable-overlap-schedule")),
    ),
    avoid="Leave --speculative-adaptive out.",
)
