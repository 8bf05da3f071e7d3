"""sglang.fa3-dp-padding, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL

from . import wrap

_LAYERS = "sglang.srt.layers"
_FA3 = f"{_LAYERS}.attention.flashattention_backend:FlashAttentionBackend"
_TRITON = f"{_LAYERS}.attention.triton_backend:TritonAttnBackend"
_TRTLLM = f"{_LAYERS}.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"
_BATCH = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"

FIX = Fix(
    id="sglang.fa3-dp-padding",
    title="Crash or NaN in prefill with DP attention over several tensor-parallel ranks (fa3, triton, TRT-LLM MHA)",
    symptom=(
        "A prefill ends in an index out of bounds (IndexKernel.cu), or in NaN, with DP attention and more ranks than "
        "`--dp-size`, or with an all-to-all backend for experts. It comes and goes with what memory held before."
    ),
    symptoms=(DIES, PARALLEL),
    cause=(
        "A prefill's tokens are padded to a multiple of the ranks that share them. fa3, triton and TRT-LLM MHA write no rows "
        "of padding. The output keeps there what its memory held, and experts are chosen by it. fa3 takes NaN among such keys "
        "and values into real rows."
    ),
    correction=(
        "The output's rows of padding are set to zero, and those of the LSE beside it. Upstream does so from 0.5.22 on for "
        "each backend. Launches that a graph records stay as they are."
    ),
    upstream=Upstream("sgl-project/sglang", pull=28487, issue=18666),
    hardware="GPUs that attend with fa3, triton or trtllm_mha (several tensor-parallel ranks for each rank of DP attention)",
    default=True,
    default_reason="a crash or NaN; upstream has released the same, and rows of requests keep their bits",
    targets=tuple(
        Target(wrap.forward_extend, needed=wrap.has_padding, paths=(f"{backend}.forward_extend",))
        for backend in (_FA3, _TRITON, _TRTLLM)
    ),
    independent=True,  # a server loads the backend that it prefills on
    # Where a batch is padded, who is told its rows, and who attends to them
    witnesses=(
        f"{_LAYERS}.radix_attention:RadixAttention.forward",
        f"{_LAYERS}.radix_attention:_attention_on_real_rows",
        f"{_BATCH}.prepare_mlp_sync_batch",
        f"{_BATCH}._pad_inputs_to_size",
        f"{_BATCH}._pad_tensor_to_size",
        f"{_FA3}.init_forward_metadata",
        f"{_TRITON}.init_forward_metadata",
        f"{_TRTLLM}.init_forward_metadata",
    ),
    cost="One small launch for each layer of a padded prefill.",
    avoid="From 0.5.3 on set `--dp-size` to the value of `--tp-size`: no rank pads a prefill.",
    expect=(
        "On one replica with DP attention and twice as many ranks, send prompts of odd lengths: stock ends in NaN or an index "
        "out of bounds now and then; fixed, it does not. Other answers stay."
    ),
    harm=CRASH,
    hits=AllOf(Is("prefill backend", "fa3", "triton", "trtllm_mha"), Is("padded prefills", ON)),
)
