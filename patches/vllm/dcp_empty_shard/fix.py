"""vllm.dcp-empty-shard, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import Fix, Needed, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL

from . import wrap

_MLA_BACKENDS = "vllm.v1.attention.backends.mla"
_TRITON = f"{_MLA_BACKENDS}.triton_mla:TritonMLAImpl"
_CUTLASS = f"{_MLA_BACKENDS}.cutlass_mla:CutlassMLAImpl"
_FLASHINFER = f"{_MLA_BACKENDS}.flashinfer_mla:FlashInferMLAImpl"
_TOKENSPEED = f"{_MLA_BACKENDS}.tokenspeed_mla:TokenspeedMLAImpl"
_COMMON = f"{_MLA_BACKENDS}.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_OPS = ("vllm.attention.ops", "vllm.v1.attention.ops")


def _decode(owner: str, needed: Needed = wrap.writes_no_lse) -> Target:
    return Target(wrap.decode, needed=needed, paths=(f"{owner}.forward_mqa", f"{owner}._forward_decode"))


FIX = Fix(
    id="vllm.dcp-empty-shard",
    title="Garbage behind short prompts with decode context parallelism (MLA)",
    symptom=(
        "With --decode-context-parallel-size above 1 and a DeepSeek-type model: a short prompt is answered with its first "
        "token right and the rest garbage, often `!!!!!`. Longer prompts are answered well. No error."
    ),
    # Read: CUTLASS's and Triton's kernels in vLLM, TokenSpeed's in tokenspeed-mla 0.1.8, FlashInfer's CuTe DSL one (for head
    # counts that trtllm-gen cannot tile) in flashinfer 0.6.16.post3. FlashInfer's trtllm-gen kernel is closed: its PR 4975 says
    # of September 2026 that it writes no output, but an LSE of -inf; that it writes one in 0.6.13-0.6.16 is not assumed.
    symptoms=(PARALLEL, GARBAGE),
    cause=(
        "A request with fewer tokens than ranks (times the interleave size) leaves a rank without KV. There Triton's decode "
        "kernel divides 0 by 0; CUTLASS's, TokenSpeed's and FlashInfer's CuTe DSL one write neither output nor LSE, "
        "FlashInfer's trtllm-gen one no output. The combine over the ranks takes what it finds: what was never written gets "
        "any weight, and NaN stays NaN times a weight of 0, up to 0.24.0 and with --dcp-comm-backend a2a up to 0.27.1."
    ),
    correction=(
        "After the kernel, rows of requests that have nothing on this rank get LSE -inf, and output 0 where the combine "
        "multiplies it by its weight of 0. TRITON_MLA is left alone from 0.25.0 on but for a2a: `status` then says `fixed "
        "upstream`."
    ),
    upstream=Upstream("vllm-project/vllm", pull=50484),
    hardware=(
        "any GPU (--decode-context-parallel-size above 1 with CUTLASS_MLA, FLASHINFER_MLA, TOKENSPEED_MLA, or TRITON_MLA: up "
        "to 0.24.0, later with --dcp-comm-backend a2a alone)"
    ),
    default=True,
    default_reason="silent wrong output; 0.28.0 masks the LSE of the same rows",
    independent=True,  # a server loads the backend that it runs
    targets=(
        _decode(_TRITON, wrap.writes_an_lse),
        _decode(_CUTLASS),
        _decode(_FLASHINFER),
        _decode(_TOKENSPEED),
    ),
    # Who calls them and combines, the kernels behind, and what masks in later releases
    witnesses=(
        f"{_CUTLASS}._sm100_cutlass_mla_decode",
        f"{_CUTLASS}._sm100_forward_decode",
        f"{_COMMON}:MLACommonImpl.forward",
        f"{_MLA}:MLACommonImpl.forward",
        f"{_MLA}:MLAAttention.forward_impl",
        *(
            f"{home}.{name}"
            for home in _OPS
            for name in (
                "common:_correct_attn_cp_out_kernel",
                "common:correct_attn_out",
                "common:cp_lse_ag_out_rs",
                "common:_cp_lse_common",
                "common:mask_dcp_empty_shards_",
                "triton_decode_attention:_fwd_kernel_stage2",
                "triton_decode_attention:_fwd_grouped_kernel_stage1",
                "triton_decode_attention:decode_attention_fwd",
            )
        ),
        *(
            f"vllm.v1.attention.ops.dcp_alltoall:{name}"
            for name in (
                "dcp_a2a_lse_reduce",
                "_dcp_lse_combine_kernel",
                "dcp_lse_combine_triton",
                "_dcp_a2a_pack_send_kernel",
                "_dcp_a2a_pack_send",
                "_dcp_a2a_unpack_combine_kernel",
                "_dcp_a2a_unpack_combine",
            )
        ),
        "vllm.v1.attention.ops.dcp:mask_dcp_empty_shards_",
        "vllm.v1.attention.ops.dcp:cp_lse_ag_out_rs",
        "vllm.v1.attention.ops.dcp_utils:MLADCPManager",
        "vllm.v1.attention.ops.dcp:MLADCPManager",
    ),
    remove_when="no vLLM below 0.28.0 is served with decode context parallelism",
    cost=(
        "On several ranks two small launches per layer and decode step, inside CUDA graphs, too; up to 0.24.0 and with a2a the "
        "second writes the output of empty requests, and reads no output: 0.13 to 0.23 ms for the 61 layers of a step on one "
        "H200, with 256 requests and one empty. On one rank about a µs of host time per layer."
    ),
    expect=(
        "On one replica with --decode-context-parallel-size 8, ask `The capital of France is`: stock ` Paris!!!!!!!!!`, fixed "
        "as without it. Long prompts are answered as before, bit for bit."
    ),
    look_does="its look keeps what it found",
    hits=AllOf(
        Is("attention", "MLA"),
        Above("decode context parallel size", 1),
        Is("decode without KV", "undefined"),
    ),
)
