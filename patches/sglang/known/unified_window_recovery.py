"""sglang.unified-window-recovery, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="sglang.unified-window-recovery",
    title="A running request loses KV when another one caches its long prefix (unified tree, window models)",
    symptom="With the unified radix tree, answers of window models turn into garbage while another one caches their prefix.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.5.11,<0.5.15",),
    code=("sglang.srt.mem_cache.unified_cache_components.swa_component:SWAComponent.update_component_on_insert_overlap",),
    upstream=Upstream("sgl-project/sglang", pull=29352),
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        AnyOf(Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE"), AllOf(Since("0.5.13"), Given("--enable-hierarchical-cache"))),
        Not(Given("--disable-radix-cache")),
    ),
    avoid="Set `--disable-hybrid-swa-memory`, or leave SGLANG_ENABLE_UNIFIED_RADIX_TREE and `--enable-hierarchical-cache` out.",
)
