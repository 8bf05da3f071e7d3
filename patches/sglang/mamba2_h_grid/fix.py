"""sglang.mamba2-h-grid, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

from . import wrap

_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:Mamba2Metadata"
_MIXER = "sglang.srt.layers.attention.mamba.mamba:MambaMixer2"
_KERNELS = "sglang.kernels.ops.mamba.triton_ops"
_FORMER = "sglang.srt.layers.attention.mamba.ops"  # up to 0.5.15.post1
_SCAN = (
    "ssd_combined:mamba_chunk_scan_combined",
    "ssd_bmm:_bmm_chunk_fwd",
    "ssd_chunk_scan:_chunk_scan_fwd",
    "ssd_chunk_state:_chunk_cumsum_fwd",
    "ssd_chunk_state:_chunk_state_fwd",
    "ssd_chunk_state:chunk_state_varlen",
    "ssd_chunk_state:_chunk_state_varlen_kernel",
    "ssd_state_passing:_state_passing_fwd",
    "ssd_state_passing:_state_passing_fwd_kernel",
)

FIX = Fix(
    id="sglang.mamba2-h-grid",
    title="Mamba2 hybrids forget or mix prompts that were prefilled together",
    symptom=(
        "NemotronH, Falcon-H1 and Granite hybrid models forget a prompt or mix it with another one. The request continues a "
        "prefix that was first computed beside other prompts. It stays wrong until the prefix leaves the cache. No error."
    ),
    symptoms=(CACHED_PREFIX, SHARED_BATCH),
    cause=(
        "The scan keeps one state per chunk of the whole batch. The state for the cache is looked up as if each request had "
        "chunks of its own: behind a request that is no whole number of chunks, it is that of another position, or request."
    ),
    correction=(
        "States are looked up by their position in the batch. One that lies inside a chunk is computed by the engine's own "
        "kernel, in one more launch per layer, as in later releases. Tracking copies it to the cache as ever."
    ),
    upstream=Upstream("sgl-project/sglang", pull=37836, issue=31833),
    hardware="any GPU (hybrid models with Mamba2 layers, radix cache and extra_buffer, the default with overlap scheduling)",
    default=True,
    default_reason="silent wrong output that stays in the cache; fixed upstream in the same way",
    targets=(
        Target(
            wrap.init_track_ssm_indices,
            needed=wrap.may_miss,
            paths=(f"{_LINEAR}:MambaAttnBackendBase._init_track_ssm_indices",),
        ),
        Target(
            wrap.init_forward_metadata,
            needed=wrap.tracks_several,
            paths=(f"{_LINEAR}:Mamba2AttnBackend.init_forward_metadata",),
        ),
        Target(
            wrap.scan,
            needed=wrap.states_are_missing,
            paths=(
                f"{_KERNELS}.ssd_combined:_mamba_chunk_scan_combined_fwd",
                f"{_FORMER}.ssd_combined:_mamba_chunk_scan_combined_fwd",
            ),
        ),
    ),
    # Who calls them, what the scan consists of, who takes the states that they name, and which requests are tracked
    witnesses=(
        *(f"{home}.{name}" for home in (_KERNELS, _FORMER) for name in _SCAN),
        f"{_METADATA}.prepare_mixed",
        f"{_LINEAR}:Mamba2AttnBackend.forward",
        f"{_LINEAR}:MambaAttnBackendBase._forward_metadata",
        f"{_LINEAR}:MambaAttnBackendBase._track_mamba_state_extend",
        f"{_LINEAR}:MambaAttnBackendBase._execute_deferred_mamba_cow_and_clear",
        f"{_MIXER}.forward",
        f"{_KERNELS}.ssd_combined:is_int_pow_2",
        f"{_FORMER}.ssd_combined:is_int_pow_2",
        f"{_LINEAR}:MambaAttnBackendBase.mamba_chunk_size",
        "sglang.srt.server_args:ServerArgs.mamba_cache_chunk_size",
        "sglang.srt.server_args:get_global_server_args",
        "sglang.srt.runtime_context:get_server_args",
        "sglang.srt.runtime_context:mamba_cache_chunk_size",
        "sglang.srt.managers.schedule_batch:ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
    ),
    cost=(
        "A look at host lists per prefill batch. Where the bug strikes: a few small copies to the GPU per batch, and per "
        "Mamba2 layer one more launch of a small kernel and a copy of its states. No state is dropped: the hit rate stays."
    ),
    avoid=(
        "Set `--prefill-max-requests 1`: each prompt is prefilled alone, so its states are looked up rightly; prefill "
        "under load slows. The prefix cache stays."
    ),
    expect=(
        "On one replica, send several long prompts of different lengths at once, then each again with a few words more: stock, "
        "most of the second answers ignore what is cached; fixed, they are as good as with --disable-radix-cache."
    ),
    look_does="its look reads what a correction stored",
    hits=AllOf(Is("Mamba2 layers", ON), Is("tracked Mamba states", ON)),
)
