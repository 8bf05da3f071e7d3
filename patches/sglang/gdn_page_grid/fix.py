"""sglang.gdn-page-grid, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

_BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend:MambaAttnBackendBase"
_LINEAR = "sglang.srt.layers.attention.linear"
_FLA = ("sglang.kernels.ops.attention.fla", "sglang.srt.layers.attention.fla")  # the latter up to 0.5.15.post1

FIX = Fix(
    id="sglang.gdn-page-grid",
    title="Linear-attention hybrids forget the conversation in follow-up turns with pages above 64 tokens",
    symptom=(
        "Qwen3-Next, Qwen3.5 or Kimi-Linear answers a prefix hit as if much of the conversation were missing, or with parts of "
        "another one. The same prompt is wrong again until its prefix leaves the cache. No error."
    ),
    symptoms=(CACHED_PREFIX,),
    cause=(
        "The kernels keep the recurrent state behind every 64 tokens of a prompt. The state for the cache is looked up as if "
        "they kept one per page. With pages of 128 tokens it is that of half the position, or of another request."
    ),
    correction="The state is looked up among those behind every 64 tokens, as in 0.5.19. NPUs stay as they are.",
    upstream=Upstream("sgl-project/sglang", pull=33561, issue=33515),
    hardware="any GPU (hybrid models with linear attention, the radix cache, extra_buffer and `--page-size 128` or more)",
    default=True,
    default_reason="silent wrong output that stays in the cache; fixed upstream in the same way",
    targets=(
        Target(
            wrap.init_track_ssm_indices,
            needed=wrap.counts_pages,
            paths=(f"{_BACKEND}._init_track_ssm_indices",),
        ),
    ),
    # Which position a state is kept for, the states that kernels keep, and who takes them
    witnesses=(
        "sglang.srt.managers.schedule_batch:ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
        f"{_BACKEND}._forward_metadata",
        f"{_BACKEND}._init_track_conv_indices",
        f"{_BACKEND}._track_mamba_state_extend",
        f"{_LINEAR}.gdn_backend:GDNAttnBackend.__init__",
        f"{_LINEAR}.gdn_backend:GDNAttnBackend.init_forward_metadata",
        f"{_LINEAR}.gdn_backend:GDNKernelDispatcher.extend_uses_state_checkpoints",
        f"{_LINEAR}.kernels.gdn_flashinfer:maybe_build_flashinfer_checkpoint_plan",
        f"{_LINEAR}.kernels.gdn_flashinfer:FlashInferGDNKernel.uses_state_checkpoints",
        f"{_LINEAR}.kernels.kernel_backend:LinearAttnKernelBase.uses_state_checkpoints",
        f"{_LINEAR}.kda_backend:KDAAttnBackend.__init__",
        f"{_LINEAR}.kda_backend:KDAAttnBackend.init_forward_metadata",
        *(f"{home}.chunk:chunk_gated_delta_rule_fwd" for home in _FLA),
        *(f"{home}.chunk_delta_h:chunk_gated_delta_rule_fwd_h" for home in _FLA),
        *(f"{home}.kda:chunk_kda_fwd" for home in _FLA),
        "sglang.srt.server_args:ServerArgs.mamba_cache_chunk_size",
        "sglang.srt.server_args:get_global_server_args",
        "sglang.srt.runtime_context:get_server_args",
        "sglang.srt.runtime_context:mamba_cache_chunk_size",
    ),
    cost=(
        "A look at host values per prefill batch. With larger pages a few small operations on the CPU and one more small copy "
        "to the GPU; the hit rate stays. States that were kept on disk before the fix stay wrong."
    ),
    avoid="Set `--page-size 64` or less, with `--attention-backend triton` where fa4 or cutlass_mla asks for 128.",
    expect=(
        "On one replica with `--page-size 128`, continue long conversations at temperature 0: stock, most answers differ from "
        "those with `--disable-radix-cache`; fixed, they do not. Other bugs of the hybrid cache stay."
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("Mamba2 layers", OFF),
        Is("tracked Mamba states", ON),
        Above("tokens of a page", 64),
        Is("states every 64 tokens", ON),
    ),
)
