"""sglang.window-leaf-margin, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.window-leaf-margin",
    title="The scheduler dies, or leaks window KV, with SGLANG_OPT_SWA_EVICT_DROP_PAGE_MARGIN",
    symptom="The scheduler of a window model whose pages are larger than its window dies, or says that memory leaks.",
    symptoms=(DIES,),
    releases=(">=0.5.14,<0.5.15",),
    code=("sglang.srt.mem_cache.common:free_swa_out_of_window_slots",),
    upstream=Upstream("sgl-project/sglang", pull=29860),
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        Given("$SGLANG_OPT_SWA_EVICT_DROP_PAGE_MARGIN"),
        Given("$SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS"),
        Unseen("whether a page is larger than the window"),
    ),
    avoid="Leave SGLANG_OPT_SWA_EVICT_DROP_PAGE_MARGIN unset.",
    harm=CRASH,
)
