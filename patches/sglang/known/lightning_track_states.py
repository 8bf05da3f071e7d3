"""sglang.lightning-track-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.lightning-track-states",
    title="Ling and Ring 2.5 forget or repeat a part of the conversation in follow-up turns",
    symptom="Answers are worse wherever a prompt continues a cached one, and right with --disable-radix-cache.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.13,<0.5.17",),
    code=(
        "sglang.srt.layers.attention.linear.lightning_backend:LightningAttentionBackend.forward_extend",
        "sglang.srt.layers.attention.linear.lightning_backend:LightningAttentionBackend.forward_decode",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "BailingMoeV2_5ForCausalLM"),
        Is("tracked Mamba states", ON),
    ),
    avoid="Set --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule, or --disable-radix-cache.",
)
