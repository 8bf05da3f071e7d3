"""sglang.mamba2-initial-state, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:Mamba2Metadata"
_MIXER = "sglang.srt.layers.attention.mamba.mamba:MambaMixer2"

FIX = Fix(
    id="sglang.mamba2-initial-state",
    title="Mamba2 hybrids lose the conversation when few new tokens follow a cached prefix",
    symptom=(
        "NemotronH, Falcon-H1 and Granite hybrid models lose the thread of a conversation, or collapse, once prompts share a "
        "prefix. It happens if fewer new tokens than a chunk stand behind the cached ones. No error."
    ),
    symptoms=(CACHED_PREFIX,),
    cause=(
        "Whether a request begins with the state of its prefix is made to depend on whether its new state is tracked for the "
        "radix cache, which needs a chunk of new tokens. With fewer, the convolution and the scan start from zero."
    ),
    correction=(
        "While a batch is prepared where a request has a prefix and less than a chunk of new tokens, the mask of tracked "
        "requests is not seen, so that the prefix alone decides, as in later releases. Tracking itself sees it as ever."
    ),
    upstream=Upstream("sgl-project/sglang", pull=29368, issue=29330),
    hardware="any GPU (hybrid models with Mamba2 layers, radix cache and extra_buffer, the default with overlap scheduling)",
    default=True,
    default_reason="silent wrong output; fixed upstream in the same way",
    targets=(
        Target(
            wrap.init_forward_metadata,
            needed=wrap.forgets_a_prefix,
            paths=(f"{_LINEAR}:Mamba2AttnBackend.init_forward_metadata",),
        ),
    ),
    # What is called with the mask and without, who reads the state that it decides on, and which requests are tracked
    witnesses=(
        f"{_METADATA}.prepare_mixed",
        f"{_METADATA}._query_start_loc_to_chunk_indices_offsets",
        f"{_LINEAR}:Mamba2AttnBackend.forward",
        f"{_LINEAR}:MambaAttnBackendBase._forward_metadata",
        f"{_LINEAR}:MambaAttnBackendBase._execute_deferred_mamba_cow_and_clear",
        f"{_MIXER}.forward",
        "sglang.srt.managers.schedule_batch:ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
        "sglang.srt.server_args:ServerArgs.mamba_cache_chunk_size",
    ),
    cost=(
        "A look at host lists per prefill batch. Where the bug strikes: a copy of the batch object, and what the engine does "
        "for any batch with a prefix, a few waits for the GPU per request."
    ),
    avoid=(
        "Start with `--disable-overlap-schedule`: states are kept without a mask (no_buffer, `--page-size` 1, not "
        "trtllm_mha); steps slow. 0.5.15 is mended."
    ),
    expect=(
        "On one replica, send a long prompt alone, then the same with a few words more: stock, the second answer ignores what "
        "is cached; fixed, it is as good as with --disable-radix-cache. What was prefilled together with other prompts is the "
        "matter of sglang.mamba2-h-grid: 0.5.13-0.5.19 also keep wrong states of such batches (PR 37836)."
    ),
    hits=AllOf(Is("Mamba2 layers", ON), Is("tracked Mamba states", ON)),
)
