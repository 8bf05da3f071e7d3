"""sglang.dflash-window-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.dflash-window-pool",
    title="Long answers fill the KV pool of window layers with DFLASH or DSPARK, and are taken back or aborted",
    symptom="`swa token usage` climbs to 1.00 while `full token usage` is low; then requests are retracted.",
    symptoms=(SLOW, SPECULATION),
    releases=(">=0.5.11,<0.5.18",),
    code=(
        "sglang.srt.speculative.dflash_info:DFlashVerifyInput.prepare_for_verify",
        "sglang.srt.speculative.dflash_info_v2:DFlashDraftInputV2.prepare_for_decode",
    ),
    upstream=Upstream("sgl-project/sglang", pull=33805),
    harm=SLOWER,
    hits=AllOf(
        Is("speculative algorithm", "DFLASH", "DSPARK"),
        Not(Is("--disaggregation-mode", "prefill")),
        AnyOf(Is("sliding-window KV pool", ON), Is("architecture", "DeepseekV4ForCausalLM")),
    ),
    avoid="Raise `--swa-full-tokens-ratio`, so that the pool holds the longest answers.",
)
