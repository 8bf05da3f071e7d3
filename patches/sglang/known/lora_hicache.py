"""sglang.lora-hicache, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.lora-hicache",
    title="LoRA adapters answer from each other's KV (HiCache, or models with a window KV pool)",
    symptom="A prompt that one adapter or the base model computed is a cache hit for the others. Nothing is logged.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.1,<0.5.3",),
    code=("sglang.srt.managers.scheduler:Scheduler.init_memory_pool_and_cache",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Given("--enable-lora"), Given("--lora-paths")),
        AnyOf(
            Given("--enable-hierarchical-cache"),
            Is("sliding-window KV pool", ON),
            Is("$SGLANG_EXPERIMENTAL_CPP_RADIX_TREE", "1"),
        ),
        Is("--disable-radix-cache", "off"),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Set `--disable-radix-cache` and leave --enable-hierarchical-cache out.",
)
