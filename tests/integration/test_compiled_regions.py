"""Which targets Dynamo meets in an engine: found in the sources of affected releases.

vLLM compiles the models (`@support_torch_compile`). Their attention layers call `torch.ops.vllm.unified_attention…` and
`unified_mla_attention…`, opaque to Dynamo on CUDA and ROCm: what an attention implementation calls runs behind them, eagerly.
sglang has two compilers. `--enable-torch-compile` compiles `model.forward` of the decode graphs, up to 0.5.13.post1, attention
with it: there a backend's `forward_extend` is traced where the graph is one of speculative decoding (TARGET_VERIFY). Piecewise
CUDA graphs compile prefill; attention is then `unified_attention_with_output`, an operator that they are split at.
"""

from __future__ import annotations

import re

from packaging.version import Version

from attnfix.compat.gate import ledger, source_files
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import FIXES

PLAN = "outside: plans a batch, a graph's buffers or a layer's loading, before a model runs"
OUTSIDE = "outside: the vision tower of these models is not compiled"
PREFILL = "outside: eager prefill alone, as piecewise graphs take the absorbed path and are captured without a prefix"
SHORT = "outside: eager prefill alone, as its caller reads on the host how long the requests are"
OPERATOR = "behind an operator: called by the implementation of an attention layer"
TRACED = "traced: called by `forward` of the backend, in a decode graph of speculative decoding"

#: {class or module of a target: {name: where}}, "" for all others of it
REGIONS = {
    "allocation_sizing": {"": PLAN},
    "BailingAttention": {"": PLAN},
    "BailingMoeV25MLAAttention": {"": PLAN},
    "BreakableCudaGraphBackend": {"": PLAN},
    "ChunkedSgmvLoRABackend": {"": PLAN},
    "common": {"": PLAN},
    "dp_attention": {"initialize_dp_attention": PLAN},
    "factory": {"get_rope": PLAN},
    "FlashAttentionBackend": {"": PLAN, "forward_decode": TRACED, "forward_extend": TRACED},
    "FlashInferAttnBackend": {"": PLAN, "forward_extend": TRACED},
    "FlashInferIndicesUpdaterDecode": {"": PLAN},
    "FlashInferMLAAttnBackend": {"": PLAN},
    "FlashInferMLAMultiStepDraftBackend": {"": PLAN},
    "FlashMLABackend": {"": PLAN, "forward_decode": TRACED},
    "FlashMLAMultiStepDraftBackend": {"": PLAN},
    "FlashInferIndicesUpdaterPrefill": {"": PLAN},
    "FlashInferMultiStepDraftBackend": {"": PLAN},
    "fused_gdn_gating": {"": OPERATOR},
    "fused_sigmoid_gating_recurrent": {"": TRACED},
    "Exaone4Attention": {"": PLAN},
    "Gemma3ForConditionalGeneration": {"": PLAN},
    "HybridAttnBackend": {"": PLAN},
    "HybridLinearAttnBackend": {"": PLAN},
    "Indexer": {"": PLAN, "_get_k_bf16": SHORT},
    "Mamba2AttnBackend": {"": PLAN},
    "MambaAttnBackendBase": {"": PLAN},
    "AttentionMetadataBuilder": {"": PLAN},
    "BaseMambaAttentionMetadataBuilder": {"": PLAN},
    "Mamba2AttentionMetadataBuilder": {"": PLAN},
    "InputProcessor": {"": PLAN},
    "MambaMixer2": {"": OPERATOR},
    "MambaRadixCache": {"": PLAN},
    "MultiLayerEagleDraftWorker": {"": PLAN},
    "MultiLayerEagleWorkerV2": {"": PLAN},
    "PrefillAdder": {"": PLAN},
    "Qwen3_5AttentionDecoderLayer": {"": PLAN},  # gives the layer a function that leads a compiler to the engine's own
    "Qwen2VisionAttention": {"": OUTSIDE},
    "rocm": {"": PLAN},
    "Req": {"": PLAN},
    "ssd_combined": {"": PREFILL},
    "ScheduleBatch": {"": PLAN},
    "schedule_batch": {"": PLAN},
    "SchedulerBatchResultProcessor": {"": PLAN},
    "SchedulerOutputProcessorMixin": {"": PLAN},
    "ServerArgs": {"": PLAN},
    "SchedulerDisaggregationPrefillMixin": {"": PLAN},
    "SWARadixCache": {"": PLAN},
    "TpModelWorkerClient": {"": PLAN},
    "TRTLLMMLAMultiStepDraftBackend": {"": PLAN},
    "CohereAttention": {"": PLAN},  # gives layers without positions a function that a compiler sees
    "Qwen3MoeAttention": {"": PLAN},  # gives the layer a config of its own, which a compiler reads
    "NemotronHMambaDecoderLayer": {"": PLAN},
    "MRotaryEmbedding": {"": PLAN},  # gives the layer the engine's own rotation, which a compiler sees
    "overlap_utils": {"": PLAN},
    "FlashInferMhaChunkKVRunner": {"": PREFILL},
    "FalconH1HybridAttentionDecoderLayer": {"": PLAN},
    "ForwardBatch": {"": PREFILL, "_pad_inputs_to_size": PLAN, "prepare_mlp_sync_batch": PLAN},
    "ForwardBatchDeepSeekMHAMixin": {"": PREFILL},
    "TritonAttnBackend": {"": PLAN, "forward_extend": TRACED, "_forward_extend_unified": TRACED},
    "TritonMultiStepDraftBackend": {"": PLAN},
    "TRTLLMMLABackend": {"": PLAN, "forward_decode": TRACED, "forward_extend": TRACED},
    "TRTLLMHAAttnBackend": {
        "__init__": PLAN,
        "forward_decode": TRACED,
        "forward_extend": TRACED,
        "_fused_fp8_set_kv_buffer": TRACED,
    },
    "MambaPool": {"": PLAN},
    "merge_attn_states": {"": OPERATOR},
    "MLACommonBaseImpl": {"": OPERATOR},
    "MLACommonImpl": {"": OPERATOR},
    "MLACommonMetadataBuilder": {"": PLAN},
    "mla_attention": {"build_mla_chunked_context_metadata": PLAN, "_get_kv_b_proj_input_dtype": OPERATOR},
    "cp_utils": {"": OPERATOR},
    "CompilationConfig": {"": PLAN},
    "CompressedTensorsKVCacheMethod": {"": PLAN},
    "DeepseekV2MLAAttention": {"": PLAN},  # gives its indexer a function that leads a compiler to the engine's own
    "DeepSeekV4TokenToKVPool": {"": PLAN},
    "DFlashSpeculator": {"": PLAN},
    "BaseKVCacheMethod": {"": PLAN},
    "FlashAttentionImpl": {"": OPERATOR},
    "FlashAttentionMetadataBuilder": {"": PLAN},
    "BatchDCPPrefillWrapper": {"plan": PLAN, "run": OPERATOR},
    "SparseMLACommonImpl": {"": OPERATOR},
    "FlashInferImpl": {"": OPERATOR},
    "flashinfer": {"trtllm_prefill_attn_kvfp8_dequant": OPERATOR},
    "EncoderDecoderCacheManager": {"": PLAN},
    "EngineCore": {"": PLAN},
    "Llama4VisionRotaryEmbedding": {"": OUTSIDE},
    "MistralAttention": {"": PLAN},  # what it says of its scaling is read while a compiler traces it
    "OAIAttention": {"": PLAN},
    "rotary_embedding": {"get_rope": PLAN},
    "spec_decode": {"": PLAN},
    "SpeculativeConfig": {"": PLAN},
    "envs": {"": PLAN},
    "VllmConfig": {"": PLAN},
    "Worker": {"": PLAN},  # its dummy batch is around the models
    "FlashInferMetadataBuilder": {"": PLAN},
    "CutlassMLAImpl": {"": OPERATOR},
    "FlashInferMLAImpl": {"": OPERATOR},
    "FlashMLAMetadataBuilder": {"": PLAN},
    "FlashInferPrefillBackend": {"": OPERATOR},
    "TrtllmRaggedPrefillBackend": {"": OPERATOR},
    "TokenspeedMLAImpl": {"": OPERATOR},
    "TritonMLAImpl": {"": OPERATOR},
    "GatedDeltaNetAttention": {"": OPERATOR},
    "GDNAttentionMetadataBuilder": {"": PLAN},
    "QwenGatedDeltaNetAttention": {"": OPERATOR},
    "Qwen3NextGatedDeltaNet": {"": OPERATOR},
    "GPUModelRunner": {"": PLAN},
    "EAGLEWorker": {"": PLAN},
    "eagle_utils": {"": PLAN},  # verification runs behind the model
    "EagleVerifyInput": {"": PLAN},
    "EagleVerifyInputV2Mixin": {"": PLAN},
    "NgramVerifyInput": {"": PLAN},
    "EagleDraftWorker": {"": PLAN},
    "EAGLEWorkerV2": {"": PLAN},
    "EagleProposer": {"": PLAN},  # it runs around the drafter's model, as the runner does around the target's
    "SpecDecodeBaseProposer": {"": PLAN},
    "HybridKVCacheCoordinator": {"": PLAN},
    "KVBlockZeroer": {"": PLAN},
    "KVCacheManager": {"": PLAN},
    "MambaManager": {"": PLAN},
    "MambaHybridModelState": {"": PLAN},
    "MambaPrefillCheckpointBuilder": {"": PLAN},
    "Scheduler": {"": PLAN},
    "AsyncScheduler": {"": PLAN},
}


def region(place):
    owner, _, name = place.qualname.rpartition(".")
    known = REGIONS[owner or place.module.rpartition(".")[2]]
    return known.get(name, known.get(""))


def affected(engine):
    """{release: the targets that are patched there}, of the first and the last release that each fix patches."""
    found = {}
    for fix in (fix for fix in FIXES if fix.engine == engine):
        patched = [release for release, verdict in ledger.load(fix).releases() if verdict == ledger.AFFECTED]
        for release in {*patched[:1], *patched[-1:]}:
            found.setdefault(release, []).extend(place for target in fix.targets for place in target.code_paths)
    return found


def text(engine, release, module):
    path = source_files.path_of(fetch.fetch(engine, release, progress=False) / engine, module)
    return path.read_text() if path else ""


def test_of_every_target_it_is_said_where_it_runs():
    for fix in FIXES:
        for place in (place for target in fix.targets for place in target.code_paths):
            assert region(place) in (PLAN, OUTSIDE, PREFILL, SHORT, OPERATOR, TRACED), f"{fix.id}: {place}"


def test_vllm_calls_attention_through_an_operator_wherever_a_target_is_behind_one():
    for release, places in affected("vllm").items():
        assert all(region(place) is not TRACED for place in places)
        if not any(region(place) is OPERATOR for place in places):
            continue
        layers = "".join(
            text("vllm", release, module)
            for module in (
                "vllm.attention.layer", "vllm.model_executor.layers.attention.attention",
                "vllm.model_executor.layers.attention.mla_attention",
            )
        )  # fmt: skip
        assert re.search(r"torch\.ops\.vllm\.unified_attention", layers) or "unified_mla_attention" in layers, release
        for ask in re.findall(r"self\.use_direct_call = not current_platform\.(\w+)\(", layers) or [None]:
            assert ask in ("is_cuda_alike", "opaque_attention_op"), (release, ask)
            for platform in ("cuda", "rocm") if ask == "opaque_attention_op" else ():
                source = text("vllm", release, f"vllm.platforms.{platform}")
                assert re.search(r"def opaque_attention_op\(cls\) -> bool:\n\s+return True", source), (release, platform)


def test_sglang_compiles_attention_with_decode_up_to_a_release():
    """From 0.5.14 no decode graph is compiled any more, so what is traced is so up to there."""
    for release in affected("sglang"):
        runner = text("sglang", release, "sglang.srt.model_executor.cuda_graph_runner")
        compiles = bool(re.search(r"torch\.compile\(\s*torch\.no_grad\(\)\(model\.forward\)", runner))
        assert compiles is (Version(release) < Version("0.5.14")), release
        layer = text("sglang", release, "sglang.srt.layers.radix_attention")
        backend = text("sglang", release, "sglang.srt.layers.attention.base_attn_backend")
        if compiles:
            assert re.search(r"attn_backend(\(\))?\.forward\(", layer) and "disable" not in layer + backend, release


COMPILED = """
import torch
from types import SimpleNamespace
from torch._dynamo.utils import counters
from attnfix.patches.lab.sglang.chunked_prefix import TRTLLM
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.sglang.zero_kv_rows.proof import Proof
proof = Proof()
proof.prepare()

def compiled(backend, batch):
    forward = torch.compile(lambda *args, **kwargs: backend.forward(*args, **kwargs), backend="eager")
    return SimpleNamespace(forward=forward)

out, reference = proof.outputs(7, [37, 33], [5, 3], TRTLLM, behind=compiled)
breaks = {reason: count for reason, count in counters["graph_break"].items()}
import attnfix
rows = {row["fix"]: row["state"] for row in attnfix.status()}
answer([breaks, rows["sglang.zero-kv-rows"], out.double().sum().item()])
"""


def test_a_traced_target_breaks_a_compiled_graph_and_answers_the_same(engine_fork):
    """No caller of the engine wants one graph there."""
    environment = engine_fork("sglang", "0.5.10.post1")
    stock, _, expected = environment.evaluate(COMPILED, ATTNFIX="0")
    breaks, state, found = environment.evaluate(COMPILED)
    assert state in ("installed", "effective") and found == expected
    assert any("attnfix corrects this function" in reason for reason in breaks.keys() - stock.keys()), (stock, breaks)
