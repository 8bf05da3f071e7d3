"""sglang.stale-prefill-fallback, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"
_PARENT = "sglang.srt.layers.attention.flashinfer_mla_backend:FlashInferMLAAttnBackend"

FIX = Fix(
    id="sglang.stale-prefill-fallback",
    title="Wrong speculative text, or a crash, after a FlashInfer fallback (TRT-LLM MLA)",
    symptom=(
        "Speculative decoding of DeepSeek-type models on TRT-LLM MLA gives wrong text once a prefill fell back to FlashInfer's "
        "MLA path. Or the server dies with an illegal memory access in FlashInfer's BatchMLAPagedAttentionKernel."
    ),
    symptoms=(SPECULATION, DIES),
    cause=(
        "A prefill falls back with --disable-chunked-prefix-cache and cached tokens, and in piecewise CUDA graphs. That it did "
        "stays on the backend. Verification and draft extend look at it, too, and so run FlashInfer's kernel, planned for "
        "that prefill's requests. Up to 0.5.9 every such step without a CUDA graph does. From 0.5.10 on eager steps forget it, "
        "but a graph that is captured behind such a prefill keeps FlashInfer's kernel for good: from 0.5.14 on the graphs of "
        "prefill are captured first."
    ),
    correction="In TARGET_VERIFY, DRAFT_EXTEND and DRAFT_EXTEND_V2 the prefill's metadata is out of sight while a layer runs.",
    upstream=Upstream("sgl-project/sglang", pull=32288),
    hardware="Blackwell (--attention-backend trtllm_mla, speculative decoding)",
    default=True,
    default_reason="wrong output and crashes; fixed upstream in the same way",
    targets=(Target(wrap.forward_extend, needed=wrap.sees_a_fallback, paths=(f"{_BACKEND}.forward_extend",)),),
    # What leaves the metadata behind, clears it, captures and replays, and where the fallback leads
    witnesses=(
        f"{_BACKEND.partition(':')[0]}:TRTLLMMLAPrefillMetadata",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}._init_cuda_graph_metadata",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}._create_block_kv_indices",
        f"{_BACKEND}._calc_padded_blocks",
        f"{_BACKEND}._run_decode_kernel",
        f"{_PARENT}.init_forward_metadata",
        f"{_PARENT}.forward_extend",
        "sglang.srt.layers.attention.utils:create_flashmla_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashmla_kv_indices_triton",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_target_verify",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_draft_extend",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_draft_extend_v2",
        "sglang.srt.environ:EnvField",
    ),
    cost="A look at one attribute per layer of a step without a CUDA graph, and of a capture; nothing at replay.",
    avoid=(
        "Start with `--disable-radix-cache --chunked-prefill-size -1` and, from 0.5.10, "
        "`--disable-piecewise-cuda-graph`: no prefill falls back; no prefix cache."
    ),
    expect=(
        "On one replica with --disable-chunked-prefix-cache (up to 0.5.9 with --disable-cuda-graph, too), send a prompt twice "
        "at temperature 0: the second answer becomes the first one's. Servers whose prefills never fall back stay the same."
    ),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("speculative decoding", ON),
        Is("verify backend", "trtllm_mla"),
        Is("verify after a fallback", ON),
    ),
)
