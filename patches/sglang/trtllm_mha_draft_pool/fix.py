"""sglang.trtllm-mha-draft-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SLOW, SPECULATION

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"
_POOL = "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool"

FIX = Fix(
    id="sglang.trtllm-mha-draft-pool",
    title="Nearly no drafts are accepted beside a model with window layers (TRT-LLM MHA)",
    symptom=(
        "EAGLE beside gpt-oss, or another model with window layers, accepts few drafts or none on Blackwell, from 0.5.10 on "
        "beyond the window. Decoding is slow; the text is right."
    ),
    symptoms=(SPECULATION, SLOW),
    cause=(
        "A draft worker shares the target's allocator, and has a KV pool of its own. The backend takes the allocator's pool "
        "for it. Where the target's layer of the same number has a window, drafts are read through that layer's page table. "
        "From 0.5.10 on, keys of an FP8 cache are written through it, too."
    ),
    correction="Backends of draft workers take the draft model's own pool, as in 0.5.13. Frozen-KV MTP keeps the target's.",
    upstream=Upstream("sgl-project/sglang", pull=25103),
    hardware="Blackwell (trtllm_mha, its default for gpt-oss)",
    default=True,
    default_reason="upstream has released the same; the text does not depend on drafts",
    targets=(Target(wrap.init, needed=wrap.drafts_beside_windows, paths=(f"{_BACKEND}.__init__",)),),
    # Readers of the pool, and makers of its tables
    witnesses=(
        f"{_BACKEND}._maybe_translate_swa",
        f"{_BACKEND}._get_layer_page_table",
        f"{_BACKEND}._get_layer_cache_loc",
        f"{_BACKEND}._resolve_swa_kv_pool",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.forward_decode",
        f"{_BACKEND}.forward_extend",
        f"{_POOL}.translate_loc_from_full_to_swa",
        "sglang.srt.mem_cache.swa_memory_pool:SWATokenToKVPoolAllocator.get_kvcache",
        "sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.__init__",
        "sglang.srt.environ:EnvField",
    ),
    cost="None: two attributes of a backend, set once.",
    avoid="Set `--speculative-draft-attention-backend triton`, or `--disable-hybrid-swa-memory`.",
    expect=(
        "On one replica with a draft model, beyond the window: the accept length that the engine logs (`accept len`) rises to "
        "that of `--disable-hybrid-swa-memory`."
    ),
    harm=SLOWER,
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        Is("draft decode backend", "trtllm_mha"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
    ),
)
