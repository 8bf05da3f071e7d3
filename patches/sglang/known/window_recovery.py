"""sglang.window-recovery, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="sglang.window-recovery",
    title="A running request loses KV when another one caches the same long prefix (sliding-window models)",
    symptom="Answers of window models turn into garbage while another request with the same long prefix ends.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.5.1,<0.5.15",),
    code=("sglang.srt.mem_cache.swa_radix_cache:SWARadixCache._insert_helper",),
    upstream=Upstream("sgl-project/sglang", pull=29352),
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        Not(Given("--disable-radix-cache")),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Set `--disable-hybrid-swa-memory`, which takes more memory, or `--disable-radix-cache`.",
)
