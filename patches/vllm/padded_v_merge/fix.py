"""vllm.padded-v-merge, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT
from attnfix.patches.vllm.shared.context_path import BUILDING, COMPUTING

from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_FLASH = "vllm.v1.attention.backends.mla.prefill.flash_attn:FlashAttnPrefillBackend"
_HOMES = ("vllm.attention.ops", "vllm.v1.attention.ops")
_LOOPS = ("_compute_prefill_context", "_context_parallel_compute_prefill_context")

FIX = Fix(
    id="vllm.padded-v-merge",
    title="Answers derail behind a very long cached context (MLA)",
    symptom=(
        "Up to a certain length DeepSeek-type models answer perfectly. Beyond it the answer derails: endless repetition, or "
        "text about nothing that was asked. The length is that at which the cached context takes more than one chunk: 64k "
        "tokens for a request alone, less for several. No error."
    ),
    symptoms=(LONG_PROMPT, GARBAGE),
    cause=(
        "FlashAttention 2 needs values as wide as keys, so 0.21.0 (PR 32623) pads them and cuts the output back to a view "
        "whose heads lie 192 elements apart. Merged chunks go to a buffer whose heads lie 128 apart. The merge kernels read "
        "both parts by the stride of the first: heads of the second are read from places between heads."
    ),
    correction="Where the parts of a merge have unequal head strides, the kernel gets packed copies.",
    upstream=Upstream("vllm-project/vllm", pull=42642),
    hardware=(
        "GPUs where MLA prefill runs FlashAttention 2: Ampere, Ada and consumer Blackwell (A100, L40S, RTX 5090), AMD and "
        "Intel; Hopper and B200 with flash_attn_version 2, B200 with VLLM_BATCH_INVARIANT"
    ),
    default=True,
    default_reason="silent wrong output; later releases give the same result",
    targets=(
        Target(
            wrap.merge_attn_states,
            needed=wrap.strides_differ,
            paths=tuple(f"{home}.merge_attn_states:merge_attn_states" for home in _HOMES),
        ),
    ),
    # What pads and cuts, what merges, and by which strides
    witnesses=(
        f"{_FLASH}.__init__",
        f"{_FLASH}._flash_attn_varlen_diff_headdims",
        f"{_FLASH}.run_prefill_new_tokens",
        f"{_FLASH}.run_prefill_context_chunk",
        *(
            f"{owner}.{name}"
            for owner in (f"{_COMMON}:MLACommonImpl", f"{_MLA}:MLACommonImpl", f"{_MLA}:MLACommonBaseImpl")
            for name in (*_LOOPS, "_forward_prefill", "forward_mha", "_flash_attn_varlen_diff_headdims")
        ),
        f"{_MLA}:init_mla_context_partial",
        f"{_MLA}:accumulate_mla_context_chunk",
        "vllm._custom_ops:merge_attn_states",
        *(f"{home}.triton_merge_attn_states:merge_attn_states{part}" for home in _HOMES for part in ("", "_kernel")),
        *BUILDING,
        *COMPUTING,
    ),
    remove_when="no vLLM below 0.26.0 is served where FlashAttention 2 computes MLA prefill",
    cost=(
        "About a µs of host time per merge. Where the strides differ, one copy of a part's output per merge and layer, as many "
        "bytes as the merge itself reads of it."
    ),
    avoid=(
        "Keep `--attention-config.flash_attn_version` unset on Hopper and B200; elsewhere start with "
        "`--no-enable-prefix-caching --no-enable-chunked-prefill`, which computes prompts whole."
    ),
    expect=(
        "On one replica, ask for a detail in the middle of a prompt of 70k tokens or more: stock, the answer derails; fixed, "
        "it is found. Prompts that fit one chunk are answered as before, bit for bit."
    ),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("MLA prefill backend", "flash_attn"),
        Is("FlashAttention pads values", ON),
        Is("cached prefix", ON),
    ),
)
