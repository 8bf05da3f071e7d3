"""sglang.xqa-verify-mask, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"
_POOL, _PARALLEL = "sglang.srt.mem_cache.memory_pool", "sglang.srt.layers.cp.utils"

FIX = Fix(
    id="sglang.xqa-verify-mask",
    title="Crash at the first verification with EAGLE or MTP (trtllm_mha on Hopper, RTX 50, RTX PRO)",
    symptom=(
        "The server dies as it starts, or at its first verification, with `Mask is required for speculative decoding`. It runs "
        "trtllm_mha with EAGLE or MTP on a Hopper, RTX 50 or RTX PRO GPU."
    ),
    symptoms=(DIES, SPECULATION),
    cause=(
        "On these GPUs FlashInfer runs its XQA kernel behind the entry point of TRT-LLM's. XQA takes the mask of several "
        "tokens per request from its caller, TRT-LLM's kernel masks by itself. The backend gives none."
    ),
    correction=(
        "The verification of a chain of drafts, and the draft extend behind it, get the causal mask that later releases make. "
        "Layers with a window stay as they are: older releases of FlashInfer give all drafts the last one's window."
    ),
    upstream=Upstream("sgl-project/sglang", pull=32269),
    hardware="NVIDIA Hopper, RTX 50, RTX PRO (--attention-backend trtllm_mha, speculative decoding)",
    default_reason="a crash; the verification is proven, the draft extend behind it is not",
    targets=(Target(wrap.forward_extend, needed=wrap.lacks_its_mask, paths=(f"{_BACKEND}.forward_extend",)),),
    # Who knows of XQA, who has a mask, and what launches with it
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}._run_fixed_q_len_decode",
        f"{_BACKEND}._get_bmm_scales",
        f"{_BACKEND}._get_layer_page_table",
        f"{_BACKEND}._maybe_quantize_q",
        f"{_BACKEND}._reshape_paged_kv_cache",
        f"{_BACKEND}._should_use_fused_fp8_path",
        f"{_POOL}:KVWriteLoc",
        f"{_POOL}:MHATokenToKVPool.get_kv_buffer",
        f"{_POOL}:MHATokenToKVPool.set_kv_buffer",
        f"{_PARALLEL}:is_cp_v2_active",
        f"{_PARALLEL}:is_cp_active",
        "sglang.srt.environ:EnvField",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
    ),
    remove_when="no sglang below 0.5.22 is served: 0.5.21 has the mask of a verification, and none of a draft extend",
    cost="A look at the batch per layer of an eager prefill or verification; a mask of a few kilobytes, made once.",
    avoid=(
        "Set `--attention-backend fa3` on Hopper, `flashinfer` on RTX 50 and RTX PRO (gpt-oss: `triton`): "
        "verification has its mask; speed differs."
    ),
    expect="On one replica: verification gets its mask, and answers at temperature 0 are those without speculation.",
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MHA"),
        Is("verify backend", "trtllm_mha"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Is("TRT-LLM MHA's kernel", "XQA"),
    ),
)
