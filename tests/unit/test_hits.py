"""Every fix's condition in both directions: deployments that hit the bug, do not, or leave it open, each with why."""

from __future__ import annotations

import shlex

import pytest
from packaging.version import Version

from attnfix.compat import diagnosis, gpus, ledger
from attnfix.compat.condition import HIT, NOT_HIT, POSSIBLE, Above, AllOf, AnyOf, Fact, Is, known, unknown
from attnfix.compat.deployment import Deployment
from attnfix.compat.fix import CRASH, SLOWER, WRONG_OUTPUT
from attnfix.compat.launch import read
from attnfix.patches.catalogue import BY_ID, FIXES

DIMS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
R1 = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", **DIMS,
      "quantization_config": {"quant_method": "fp8"}}  # fmt: skip
V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", **DIMS}
V32 = {**R1, "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_topk": 2048}
AWQ = {**R1, "quantization_config": {"quant_method": "awq", "modules_to_not_convert": ["lm_head"]}}
INT4 = {**R1, "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"format": "pack-quantized"}}}}  # fmt: skip
FP8_KV = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}}  # fmt: skip
AWQ_LEFT = {**R1, "quantization_config": {"quant_method": "awq", "modules_to_not_convert": ["kv_b_proj"]}}
NEXT = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "layer_types": ["linear_attention", "full_attention"]}  # fmt: skip
QWEN35 = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {"linear_num_value_heads": 32}}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}
RING = {**V2, "architectures": ["BailingMoeV2_5ForCausalLM"], "model_type": "bailing_hybrid"}
KIMI_VL = {"architectures": ["KimiVLForConditionalGeneration"], "text_config": {"kv_lora_rank": 512}}
MLLAMA = {"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama"}
MODELS = {"R1": R1, "V2": V2, "V3.2": V32, "AWQ": AWQ, "INT4": INT4, "AWQ-left": AWQ_LEFT, "Llama": LLAMA, "Kimi-VL": KIMI_VL,
          "FP8-KV": FP8_KV, "FP8-KV-R1": {**R1, **FP8_KV, "model_type": "deepseek_v3"}, "gpt-oss": GPT_OSS,
          "Mllama": MLLAMA, "Next": NEXT, "3.5": QWEN35, "Ring": RING}  # fmt: skip

SGL = "sglang serve --model-path m "
SPEC = SGL + "--speculative-algorithm EAGLE "
ON_V2 = "SGLANG_ENABLE_SPEC_V2=1 " + SPEC
EXACT = SGL + "--attention-backend triton --enable-deterministic-inference "
TREES = SGL + "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4 "
TWO = SGL + "--prefill-attention-backend flashinfer --decode-attention-backend flashmla "
DP = SGL + "--tp-size 8 --dp-size 8 --enable-dp-attention "
VLLM = "vllm serve m "
FP8 = VLLM + "--kv-cache-dtype fp8 "
MTP = VLLM + "-sc.num_speculative_tokens=3 "
RAGGED = VLLM + "-ac.use_trtllm_ragged_deepseek_prefill=true"

#: fix, release, model, GPU, launch, verdict, what a reason must name
CASES = [
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL, HIT, "prefill backend: trtllm_mla (default of sglang 0.5.9"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b300", SGL + "--attention-backend trtllm_mla", HIT, "(--attention-backend)"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "h200", SGL, NOT_HIT, "prefill backend: fa3"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "h200", SGL + "--attention-backend trtllm_mla", NOT_HIT, "no server starts with it"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "h200", SGL + "--prefill-attention-backend trtllm_mla", POSSIBLE, "was not read"),
    ("vllm.empty-context-chunks", "0.25.1", "R1", "h200", VLLM + "-ac.mla_prefill_backend=TRTLLM_RAGGED", NOT_HIT, "no server"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "rtx5090", SGL, NOT_HIT, "prefill backend: triton"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "mi300x", SGL, NOT_HIT, "aiter or triton"),
    ("sglang.zero-kv-rows", "0.5.9", "V2", "b200", SGL, NOT_HIT, "prefill backend: flashinfer"),
    ("sglang.zero-kv-rows", "0.5.3", "R1", "b200", SGL, NOT_HIT, "prefill backend: flashinfer"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", None, SGL, POSSIBLE, "needs --gpu"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", None, POSSIBLE, "needs the launch command"),
    ("sglang.zero-kv-rows", "0.5.9", None, "b200", SGL, POSSIBLE, "needs the model's config.json"),
    ("sglang.zero-kv-rows", "0.5.9", "Llama", "b200", SGL, NOT_HIT, "config.json has no kv_lora_rank"),
    ("sglang.zero-kv-rows", "0.5.9", "V3.2", "b200", SGL, NOT_HIT, "sparse MLA"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL + "--disable-chunked-prefix-cache", NOT_HIT, "prefix cache: off"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL + "--disable-radix-cache", HIT, "cached prefix: on"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL + "--disable-radix-cache --chunked-prefill-size -1", NOT_HIT, "off"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL + "--config a.yaml", POSSIBLE, "--config a.yaml, which is not read"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL + "--decode-attention-backend fa3", NOT_HIT, "flashinfer"),
    ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL + "--prefill-attention-backend trtllm_mla", HIT, "trtllm_mla"),
    ("sglang.lse-log-base", "0.5.23", "R1", "h100", SGL + "--attention-backend flashinfer", HIT, "prefill backend: flashinfer"),
    ("sglang.lse-log-base", "0.5.23", "R1", "b200", SGL + "--attention-backend tokenspeed_mla", POSSIBLE, "shares code with"),
    ("sglang.lse-log-base", "0.5.23", "R1", "h100", SGL, NOT_HIT, "prefill backend: fa3"),
    ("sglang.lse-log-base", "0.5.23", "V2", "b200", SGL, HIT, "prefill backend: flashinfer (default of sglang 0.5.23"),
    ("sglang.lse-log-base", "0.5.23", "Kimi-VL", "b200", SGL, HIT, "architecture KimiVLForConditionalGeneration"),
    ("sglang.lse-log-base", "0.5.9", "Llama", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "attention: MHA"),
    ("sglang.uniform-replay-stride-mla", "0.5.9", "R1", "b200", ON_V2, HIT, "spec v2: on (SGLANG_ENABLE_SPEC_V2=1)"),
    ("sglang.uniform-replay-stride-mla", "0.5.9", "R1", "b200", SPEC, NOT_HIT, "spec v2: off (no SGLANG_ENABLE_SPEC_V2)"),
    ("sglang.uniform-replay-stride-mla", "0.5.9", "R1", "b200", "SGLANG_ENABLE_SPEC_V2=1 " + SGL, NOT_HIT, "none"),
    ("sglang.uniform-replay-stride-mla", "0.5.9", "R1", "b200", ON_V2 + "--disable-cuda-graph", NOT_HIT, "CUDA graphs: off"),
    ("sglang.uniform-replay-stride-mla", "0.5.9", "R1", "h100", ON_V2, NOT_HIT, "draft extend backend: fa3"),
    ("sglang.uniform-replay-stride-mla", "0.5.9", "R1", "b200",
     ON_V2 + "--decode-attention-backend flashinfer --prefill-attention-backend trtllm_mla --speculative-attention-mode decode",
     NOT_HIT, "draft extend backend: flashinfer (--decode-attention-backend)"),
    ("sglang.uniform-replay-stride-triton", "0.5.9", "Llama", "h100", ON_V2 + "--attention-backend triton", HIT, "triton"),
    ("sglang.uniform-replay-stride-triton", "0.5.9", "Llama", "h100",
     ON_V2.replace("EAGLE", "NEXTN") + "--speculative-draft-attention-backend triton", HIT, "NEXTN"),
    ("sglang.uniform-replay-stride-triton", "0.5.9", "Llama", "h100", ON_V2, NOT_HIT, "draft extend backend: fa3"),
    ("sglang.uniform-replay-stride-triton", "0.5.9", "Llama", "h100", ON_V2 + "--kv-cache-dtype fp8_e5m2", HIT, "fp8_e5m2"),
    ("sglang.uniform-replay-stride-triton", "0.5.9", "R1", "a100", ON_V2, HIT, "default of sglang 0.5.9"),
    ("sglang.stale-prefill-fallback", "0.5.9", "R1", "b200",
     SPEC + "--disable-chunked-prefix-cache --disable-cuda-graph", HIT, "and no CUDA graphs"),
    ("sglang.stale-prefill-fallback", "0.5.9", "R1", "b200", SPEC + "--disable-chunked-prefix-cache", POSSIBLE, "fits"),
    ("sglang.stale-prefill-fallback", "0.5.9", "R1", "b200", SPEC, POSSIBLE, "piecewise"),
    ("sglang.stale-prefill-fallback", "0.5.7", "R1", "b200", SPEC, NOT_HIT, "no --disable-chunked-prefix-cache"),
    ("sglang.stale-prefill-fallback", "0.5.15", "R1", "b200", SPEC, POSSIBLE, "piecewise CUDA graph was not read"),
    ("sglang.stale-prefill-fallback", "0.5.15", "R1", "h200", SPEC, NOT_HIT, "verify backend: fa3"),
    ("sglang.stale-prefill-fallback", "0.5.15", "R1", "b200", SGL, NOT_HIT, "speculative decoding: off"),
    ("sglang.triton-draft-double-count", "0.5.12", "Llama", "h100", SPEC + "--attention-backend triton", HIT, "spec v2: on"),
    ("sglang.triton-draft-double-count", "0.5.9", "Llama", "h100", ON_V2 + "--attention-backend triton", HIT, "spec v2: on"),
    ("sglang.triton-draft-double-count", "0.5.9", "Llama", "h100", SPEC + "--attention-backend triton", NOT_HIT, "v2: off"),
    ("sglang.triton-draft-double-count", "0.5.12", "Llama", "h100",
     SPEC + "--attention-backend triton --speculative-num-steps 5 --speculative-eagle-topk 8", NOT_HIT, "topk above 1"),
    ("sglang.triton-draft-double-count", "0.5.12", "Llama", "h100",
     SPEC + "--attention-backend triton --speculative-num-steps 3 --speculative-eagle-topk 1", HIT, "spec v2: on"),
    ("sglang.triton-draft-double-count", "0.5.12", "R1", "h100", SPEC, NOT_HIT, "draft extend backend: fa3"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 8",
     HIT, "topk or page size above 1"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 1",
     NOT_HIT, "speculative topk: 1"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 1 --speculative-eagle-topk 8",
     NOT_HIT, "speculative steps: 1"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100",
     SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 8 --config a.yaml", POSSIBLE,
     "--speculative-draft-attention-backend may be set in --config a.yaml"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100", SPEC, NOT_HIT, "draft decode backend: fa3"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100", SPEC + "--attention-backend flashinfer", HIT,
     "speculative topk: 4 (sglang 0.5.9 chooses it for LlamaForCausalLM)"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100", SGL, NOT_HIT, "speculative algorithm: none"),
    ("sglang.draft-kv-indices", "0.5.9", "R1", "h100", SPEC + "--attention-backend flashinfer", NOT_HIT, "attention: MLA"),
    ("sglang.draft-kv-indices", "0.5.9", "Llama", "h100",
     SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 8 --disable-cuda-graph", NOT_HIT, "CUDA graphs: off"),
    ("sglang.triton-swa-deterministic", "0.5.9", "gpt-oss", "h100", EXACT, HIT, "sliding-window KV pool: on (sglang 0.5.9 for"),
    ("sglang.triton-swa-deterministic", "0.5.9", "gpt-oss", "h100",
     SGL + "--attention-backend triton --rl-on-policy-target fsdp", HIT, "deterministic inference: on (--rl-on-policy-target)"),
    ("sglang.triton-swa-deterministic", "0.5.9", "gpt-oss", "h100", SGL + "--attention-backend triton", NOT_HIT, "off"),
    ("sglang.triton-swa-deterministic", "0.5.9", "gpt-oss", "h100", EXACT + "--disable-hybrid-swa-memory", NOT_HIT, "off"),
    ("sglang.triton-swa-deterministic", "0.5.9", "gpt-oss", "h100", EXACT + "--enable-hierarchical-cache", POSSIBLE, "read"),
    ("sglang.triton-swa-deterministic", "0.5.7", "gpt-oss", "h100", EXACT, POSSIBLE, "GptOssForCausalLM a KV pool of"),
    ("sglang.triton-swa-deterministic", "0.5.9", None, "h100", EXACT, POSSIBLE, "needs the model's config.json"),
    ("sglang.triton-swa-deterministic", "0.5.9", "Llama", "h100", EXACT, NOT_HIT, "LlamaForCausalLM has no window layers"),
    ("sglang.fa3-swa-topk", "0.5.9", "gpt-oss", "h100", TREES + "--attention-backend fa3", HIT, "verify backend: fa3"),
    ("sglang.fa3-swa-topk", "0.5.9", "gpt-oss", "h100", TREES, POSSIBLE, "name it with --attention-backend"),
    ("sglang.fa3-swa-topk", "0.5.9", "gpt-oss", "h100", TREES + "--attention-backend triton", NOT_HIT, "backend: triton"),
    ("sglang.fa3-swa-topk", "0.5.9", "gpt-oss", "h100",
     TREES + "--prefill-attention-backend triton --decode-attention-backend fa3 --speculative-attention-mode decode", HIT,
     "verify backend: fa3 (--decode-attention-backend)"),
    ("sglang.fa3-swa-topk", "0.5.9", "Llama", "h100", TREES + "--attention-backend fa3", NOT_HIT, "has no window layers"),
    ("sglang.fa3-swa-topk", "0.5.9", "gpt-oss", "h100",
     SPEC + "--attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1", NOT_HIT, "speculative topk: 1"),
    ("sglang.encoder-decode-lengths", "0.5.9", "Mllama", "h100", SGL + "--attention-backend flashinfer", HIT, "Mllama"),
    ("sglang.encoder-decode-lengths", "0.5.9", "Mllama", "h100", SGL, POSSIBLE, "the default for Mllama"),
    ("sglang.encoder-decode-lengths", "0.5.9", "Llama", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "r: off"),
    ("sglang.encoder-decode-lengths", "0.5.9", None, "h100", SGL + "--attention-backend flashinfer", POSSIBLE, "config.json"),
    ("sglang.encoder-decode-lengths", "0.5.9", "Mllama", "h100", SGL + "--attention-backend triton", NOT_HIT, "triton"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", "R1", "h100", TWO, HIT, "hybrid backend: on (prefill flashinfer"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", "R1", "h100", SGL + "--prefill-attention-backend flashinfer", HIT, "decode fa3"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", "R1", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "backend: off"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", "R1", "h100", SGL + "--decode-attention-backend flashmla", NOT_HIT, "fa3"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", "Ring", "h100", SGL + "--attention-backend flashinfer", HIT, "linear attention"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", "R1", "h100", TWO + "--disable-chunked-prefix-cache", NOT_HIT, "off"),
    ("sglang.hybrid-chunk-metadata", "0.5.9", None, "h100", TWO, POSSIBLE, "needs the model's config.json"),
    ("sglang.fa3-scheduler-metadata", "0.5.11", "Llama", "h100", DP, HIT, "for other heads (--enable-dp-attention)"),
    ("sglang.fa3-scheduler-metadata", "0.5.12", "Llama", "h100", DP, NOT_HIT, "makes none under DP attention"),
    ("sglang.fa3-scheduler-metadata", "0.5.13", "Llama", "h100", SGL + "--tp 8 --enable-prefill-context-parallel", HIT,
     "for other heads"),
    ("sglang.fa3-scheduler-metadata", "0.5.11", "Llama", "h100", SGL + "--tp-size 8", NOT_HIT, "schedule: right"),
    ("sglang.fa3-scheduler-metadata", "0.5.11", "Llama", "h100", DP + "--attention-backend triton", NOT_HIT, "triton"),
    ("sglang.fa3-scheduler-metadata", "0.5.11", "R1", "h100", DP, NOT_HIT, "attention: MLA"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "b200", RAGGED, HIT, "MLA prefill backend: trtllm_ragged"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "b200", RAGGED, HIT, "cached prefix: on (prefix-caching, on by default)"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "b200", RAGGED + " --config a.yaml", POSSIBLE, "a.yaml, which is not read"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "b200", VLLM, NOT_HIT, "MLA prefill backend: flash_attn"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "h200", RAGGED, NOT_HIT, "flash_attn"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "h200", None, NOT_HIT, "flash_attn"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "b200", None, POSSIBLE, "needs the launch command"),
    ("vllm.empty-context-chunks", "0.25.1", "R1", "b200", VLLM, NOT_HIT, "default of vLLM 0.25.1"),
    ("vllm.empty-context-chunks", "0.25.1", "R1", "b200", VLLM + "-ac.mla_prefill_backend=TRTLLM_RAGGED", HIT, "trtllm_ragged"),
    ("vllm.empty-context-chunks", "0.25.1", "R1", "b200",
     VLLM + "-ac.mla_prefill_backend=TRTLLM_RAGGED --no-enable-prefix-caching --no-enable-chunked-prefill", NOT_HIT, "off"),
    ("vllm.empty-context-chunks", "0.20.0", "R1", "b200", "VLLM_MLA_DISABLE=1 " + RAGGED, NOT_HIT, "VLLM_MLA_DISABLE"),
    ("vllm.skip-context-zero-fill", "0.16.0", "R1", "b200", VLLM, HIT, "trtllm_ragged"),
    ("vllm.skip-context-zero-fill", "0.18.0", "R1", "b200", VLLM, NOT_HIT, "flash_attn"),
    ("vllm.skip-context-zero-fill", "0.13.0", "R1", "b200", "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL=1 " + VLLM, HIT, "trtllm"),
    ("vllm.lse-log-base", "0.13.0", "R1", "b200", VLLM, HIT, "MLA prefill backend: flashinfer"),
    ("vllm.lse-log-base", "0.13.0", "R1", "b200", "VLLM_DISABLE_FLASHINFER_PREFILL=1 " + VLLM, NOT_HIT, "flash_attn"),
    ("vllm.lse-log-base", "0.10.2", "R1", "b200", VLLM, POSSIBLE, "whether FlashInfer is installed"),
    ("vllm.lse-log-base", "0.13.0", "R1", "h100", VLLM, NOT_HIT, "flash_attn"),
    ("vllm.lse-log-base", "0.25.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", HIT, "FLASHINFER"),
    ("vllm.lse-log-base", "0.13.0", "Llama", "h100", "VLLM_ATTENTION_BACKEND=FLASHINFER " + VLLM + "-dcp 2", HIT, "VLLM_ATT"),
    ("vllm.lse-log-base", "0.25.1", "Llama", "h100", VLLM + "-dcp 2", POSSIBLE, "the default depends on"),
    ("vllm.lse-log-base", "0.25.1", "Llama", "h100", VLLM + "--attention-backend FLASHINFER", NOT_HIT, "parallel size: 1"),
    ("vllm.kv-scale-float", "0.19.1", "FP8-KV", "l40s", VLLM + "--attention-backend FLASHINFER", HIT, "kv_cache_scheme"),
    ("vllm.kv-scale-float", "0.19.1", "FP8-KV", "l40s", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "FLASH_ATTN"),
    ("vllm.kv-scale-float", "0.19.1", "FP8-KV", "l40s", VLLM, POSSIBLE, "the default depends on GPU"),
    ("vllm.kv-scale-float", "0.19.1", "Llama", "l40s", VLLM + "--attention-backend FLASHINFER", NOT_HIT, "quantization none"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8, HIT, "attention backend: FLASHMLA (default of vLLM 0.16.0"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8, HIT, "full CUDA graphs: on (default from 0.11.0)"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8 + "-cc.cudagraph_mode=PIECEWISE", NOT_HIT, "cudagraph_mode PIECE"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8 + "-cc.cudagraph_mode=FULL_DECODE_ONLY", HIT, "FULL_DECODE_ONLY"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8 + "-cc.mode=3", POSSIBLE, "may choose"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8 + "-O1", POSSIBLE, "-O1 may choose the mode of CUDA graphs"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8 + "--enforce-eager", NOT_HIT, "--enforce-eager"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", FP8 + "--attention-backend TRITON_MLA", NOT_HIT, "TRITON_MLA"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "b200", FP8, POSSIBLE, "the default depends on GPU"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "R1", "h200", VLLM, NOT_HIT, "KV cache dtype: auto"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "FP8-KV-R1", "h200", VLLM + "--attention-backend FLASHMLA", POSSIBLE, "kv_cache_s"),
    ("vllm.flashmla-fp8-graph", "0.16.0", "V3.2", "h200", FP8, NOT_HIT, "sparse MLA"),
    ("vllm.fa3-dcp-graph", "0.19.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASH_ATTN", HIT, "parallel size: 2"),
    ("vllm.fa3-dcp-graph", "0.13.0", "Llama", "h100", "VLLM_ATTENTION_BACKEND=FLASH_ATTN " + VLLM + "-dcp 2", HIT, "VLLM_ATT"),
    ("vllm.fa3-dcp-graph", "0.19.1", "Llama", "h100", VLLM + "-dcp 2", POSSIBLE, "the default depends on GPU"),
    ("vllm.fa3-dcp-graph", "0.19.1", "Llama", "h100", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "parallel size: 1"),
    ("vllm.fa3-dcp-graph", "0.19.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", NOT_HIT, "FLASHINFER"),
    ("vllm.fa3-dcp-graph", "0.19.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASH_ATTN --enforce-eager", NOT_HIT,
     "full CUDA graphs: off"),
    ("vllm.fa3-dcp-graph", "0.19.1", "R1", "h100", VLLM + "-dcp 2", NOT_HIT, "attention: MLA"),
    ("vllm.gdn-uniform-decode", "0.22.0", "Next", "h100", MTP, HIT, "layers of linear attention"),
    ("vllm.gdn-uniform-decode", "0.22.0", "3.5", "h100", MTP, HIT, "speculative decoding: on (--speculative-config)"),
    ("vllm.gdn-uniform-decode", "0.33.0", "Next", "h100", MTP, POSSIBLE, "set VLLM_USE_V2_MODEL_RUNNER"),
    ("vllm.gdn-uniform-decode", "0.33.0", "Next", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + MTP, HIT, "model runner: V1"),
    ("vllm.gdn-uniform-decode", "0.22.0", "Next", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("vllm.gdn-uniform-decode", "0.22.0", "Next", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
    ("vllm.gdn-uniform-decode", "0.22.0", "Next", "h100", MTP + "--enforce-eager", NOT_HIT, "full CUDA graphs: off"),
    ("vllm.gdn-uniform-decode", "0.22.0", "Llama", "h100", MTP, NOT_HIT, "no layers of linear attention"),
    ("vllm.quantized-mla-context", "0.25.1", "AWQ", "h100", VLLM, HIT, "kv_b_proj: packed (quantization awq)"),
    ("vllm.quantized-mla-context", "0.25.1", "INT4", "h100", VLLM, HIT, "kv_b_proj: packed"),
    ("vllm.quantized-mla-context", "0.25.1", "AWQ-left", "h100", VLLM, NOT_HIT, "which leaves out kv_b_proj"),
    ("vllm.quantized-mla-context", "0.25.1", "R1", "a100", VLLM, HIT, "by Marlin on a100"),
    ("vllm.quantized-mla-context", "0.25.1", "R1", "h100", VLLM, NOT_HIT, "kv_b_proj: floats"),
    ("vllm.quantized-mla-context", "0.25.1", "V2", "h100", VLLM, NOT_HIT, "no quantization_config"),
    ("vllm.quantized-mla-context", "0.25.1", "V2", "h100", VLLM + "-q bitsandbytes", POSSIBLE, "was not read"),
    ("vllm.mla-context-order", "0.25.1", "V2", "h100", VLLM, HIT, "default of vLLM 0.25.1 for DeepseekV2ForCausalLM"),
    ("vllm.mla-context-order", "0.25.1", "V2", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + VLLM, NOT_HIT, "model runner: V1"),
    ("vllm.mla-context-order", "0.25.1", "R1", "h100", VLLM, NOT_HIT, "model runner: V1"),
    ("vllm.mla-context-order", "0.25.1", "R1", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + VLLM, HIT, "model runner: V2"),
    ("vllm.mla-context-order", "0.20.0", "V2", "h100", VLLM, NOT_HIT, "model runner: V1"),
    ("vllm.mla-context-order", "0.25.1", "V2", "h100", VLLM + "--made-up", POSSIBLE, "unless an option needs V1"),
    ("vllm.mla-context-order", "0.25.1", "V2", "h100", None, POSSIBLE, "needs the launch command"),
    ("vllm.dcp-empty-shard", "0.24.0", "R1", "h100", VLLM + "-dcp 8 --attention-backend TRITON_MLA", HIT, "parallel size: 8"),
    ("vllm.dcp-empty-shard", "0.27.1", "R1", "b200", VLLM + "-dcp 8 --attention-backend FLASHINFER_MLA", HIT, "FLASHINFER_MLA"),
    ("vllm.dcp-empty-shard", "0.24.0", "R1", "h100", VLLM + "-dcp 8 --attention-backend FLASHMLA", NOT_HIT, "FLASHMLA"),
    ("vllm.dcp-empty-shard", "0.27.1", "R1", "h100", VLLM + "-dcp 8 --attention-backend TRITON_MLA", NOT_HIT, "neutral"),
    ("vllm.dcp-empty-shard", "0.24.0", "R1", "h100", VLLM + "-dcp 8 --attention-backend MINE", POSSIBLE, "MINE leaves was not"),
    ("vllm.dcp-empty-shard", "0.24.0", "R1", "h100", VLLM + "-dcp 8", POSSIBLE, "the default depends on"),
    ("vllm.dcp-empty-shard", "0.24.0", "R1", "h100", VLLM + "--attention-backend TRITON_MLA", NOT_HIT, "parallel size: 1"),
    ("vllm.dcp-page-counts", "0.25.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", HIT, "FLASHINFER"),
    ("vllm.dcp-page-counts", "0.25.1", "Llama", "h100", VLLM + "-dcp 2", POSSIBLE, "the default depends on"),
    ("vllm.dcp-page-counts", "0.25.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASH_ATTN", NOT_HIT, "FLASH_ATTN"),
    ("vllm.dcp-page-counts", "0.25.1", "Llama", "h100", VLLM + "--attention-backend FLASHINFER", NOT_HIT, "size: 1"),
    ("vllm.dcp-page-counts", "0.25.1", "R1", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", NOT_HIT, "attention: MLA"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "a100", VLLM, HIT, "FlashAttention 2 on a100, sm_80"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "rtx5090", None, POSSIBLE, "needs the launch command"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "h200", VLLM, NOT_HIT, "pads values: off (FlashAttention 3 on h200"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "h200", VLLM + "-ac.flash_attn_version=2", HIT, "--attention-config.flash_attn"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "h200", VLLM + "-ac.flash_attn_version=x", POSSIBLE, "x is no number"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "b200", VLLM, NOT_HIT, "FlashAttention 4 on b200"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "b200", "VLLM_BATCH_INVARIANT=1 " + VLLM, HIT, "VLLM_BATCH_INVARIANT"),
    ("vllm.padded-v-merge", "0.25.1", None, "b200", VLLM, POSSIBLE, "needs the model's config.json"),
    ("vllm.padded-v-merge", "0.25.1", "R1", "mi300x", VLLM, POSSIBLE, "flash_attn or rocm_aiter_fa"),
    ("vllm.padded-v-merge", "0.25.1", "Llama", "a100", VLLM, NOT_HIT, "attention: MHA"),
    ("vllm.both-empty-merge-cuda", "0.11.0", "R1", "h100", VLLM, HIT, "GPU: NVIDIA"),
    ("vllm.both-empty-merge-cuda", "0.11.0", "R1", "mi300x", VLLM, NOT_HIT, "GPU: AMD"),
    ("vllm.both-empty-merge-cuda", "0.10.2", "R1", "h100", "VLLM_USE_V1=0 " + VLLM, NOT_HIT, "engine core: V0"),
    ("vllm.both-empty-merge-triton", "0.25.1", "R1", "mi300x", VLLM, HIT, "GPU: AMD"),
    ("vllm.both-empty-merge-triton", "0.25.1", "R1", "h100", VLLM, NOT_HIT, "GPU: NVIDIA"),
    ("vllm.prefill-context-merge", "0.16.0", "R1", "h100", VLLM, HIT, "GPU: NVIDIA"),
    ("vllm.prefill-context-merge", "0.16.0", "Llama", "h100", VLLM, NOT_HIT, "attention: MHA"),
]  # fmt: skip
#: Faults of development code alone: judged as if the code had them
DEVELOPMENT = [
    ("sglang.mha-draft-extend-routing", "0.5.12", "Llama", "b200",
     SPEC + "--speculative-num-steps 3 --speculative-eagle-topk 1", HIT, "trtllm_mha"),
    ("sglang.mha-draft-extend-routing", "0.5.12", "Llama", "h100", SPEC, NOT_HIT, "draft extend backend: fa3"),
    ("sglang.skip-seq-lens-sync", "0.5.12", "R1", "b200", SPEC, HIT, "decode backend: trtllm_mla"),
    ("sglang.skip-seq-lens-sync", "0.5.12", "R1", "b200", SPEC + "--enable-two-batch-overlap", NOT_HIT, "overlap: on"),
]  # fmt: skip


def answer(fix, release, model, gpu, launch, code=None):
    deployment = Deployment(
        BY_ID[fix].engine,
        release=Version(release),
        config=MODELS[model] if model else None,
        gpu=gpus.named(gpu) if gpu else None,
        launch=read(shlex.split(launch)) if launch else None,
    )
    code = code or ledger.load(BY_ID[fix]).verdict(release)
    return diagnosis.answer(BY_ID[fix], code, release, diagnosis.facts(deployment))


@pytest.mark.parametrize("fix, release, model, gpu, launch, verdict, says", CASES)
def test_a_published_release(fix, release, model, gpu, launch, verdict, says):
    assert ledger.load(BY_ID[fix]).verdict(release) == ledger.AFFECTED or fix == "sglang.zero-kv-rows", "else the code decides"
    found = answer(fix, release, model, gpu, launch)
    assert found.verdict == verdict, found.reasons
    assert says in " / ".join(found.reasons)


@pytest.mark.parametrize("fix, release, model, gpu, launch, verdict, says", DEVELOPMENT)
def test_development_code(fix, release, model, gpu, launch, verdict, says):
    found = answer(fix, release, model, gpu, launch, ledger.AFFECTED)
    assert found.verdict == verdict, found.reasons
    assert says in " / ".join(found.reasons)
    assert answer(fix, release, model, gpu, launch).verdict == NOT_HIT, "no release has it"


@pytest.mark.parametrize("fix", BY_ID)
def test_every_fix_is_tried_in_both_directions(fix):
    verdicts = {case[5] for case in (*CASES, *DEVELOPMENT) if case[0] == fix}
    assert {HIT, NOT_HIT} <= verdicts
    assert BY_ID[fix].hits.names <= set(diagnosis.MAKERS[BY_ID[fix].engine])
    assert BY_ID[fix].harm in (WRONG_OUTPUT, CRASH, SLOWER)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_nothing_known_is_never_an_answer(fix):
    """No release, model, GPU or launch: every bug that the code has is possible."""
    deployment = Deployment(fix.engine)
    assert diagnosis.answer(fix, ledger.AFFECTED, "", diagnosis.facts(deployment)).verdict == POSSIBLE
    assert diagnosis.answer(fix, ledger.FIXED, "", diagnosis.facts(deployment)).verdict == NOT_HIT


#: The facts that make each fix's bug hit: name -> (values that do, one that does not). A bug with two ways to it stands twice
_MLA, _PREFIX, _GRAPHS = (("MLA",), "MHA"), (("on",), "off"), (("on",), "off")
_NVIDIA, _OTHERS, _CORE = (("NVIDIA",), "AMD"), (("AMD", "Intel"), "NVIDIA"), (("V1",), "V0")
_V2 = {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "NGRAM"), "spec v2": (("on",), "off")}
_RAGGED = {"attention": _MLA, "cached prefix": _PREFIX, "MLA prefill backend": (("trtllm_ragged",), "flash_attn")}
_MERGED = {"attention": _MLA, "cached prefix": _PREFIX, "engine core": _CORE}
_CHUNKED = {"attention": _MLA, "cached prefix": _PREFIX, "chunked prefix cache": (("on",), "off")}
_BASE_2 = ("trtllm_mla", "flashinfer", "flashmla", "cutlass_mla")
WAYS = [
    ("sglang.zero-kv-rows", {**_CHUNKED, "prefill backend": (("trtllm_mla",), "flashinfer")}),
    ("sglang.lse-log-base", {**_CHUNKED, "prefill backend": (_BASE_2, "fa3")}),
    ("sglang.uniform-replay-stride-mla", {**_V2, "draft extend backend": (("trtllm_mla",), "triton"), "CUDA graphs": _GRAPHS}),
    ("sglang.uniform-replay-stride-triton", {**_V2, "draft extend backend": (("triton",), "fa3"), "CUDA graphs": _GRAPHS}),
    ("sglang.stale-prefill-fallback",
     {"attention": _MLA, "speculative decoding": (("on",), "off"), "verify backend": (("trtllm_mla",), "flashinfer"),
      "verify after a fallback": (("on",), "off")}),
    ("sglang.triton-draft-double-count", {**_V2, "draft extend backend": (("triton",), "fa3"), "CUDA graphs": _GRAPHS}),
    ("sglang.mha-draft-extend-routing", {**_V2, "draft extend backend": (("trtllm_mha",), "trtllm_mla")}),
    ("sglang.skip-seq-lens-sync",
     {**_V2, "speculative algorithm": (("EAGLE", "EAGLE3"), "STANDALONE"), "decode backend": (("trtllm_mla",), "fa3"),
      "two-batch overlap": (("off",), "on")}),
    ("sglang.draft-kv-indices",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative topk": ((2, 8), 1), "speculative steps": ((2, 5), 1),
      "attention": (("MHA",), "MLA"), "draft decode backend": (("flashinfer",), "triton"), "CUDA graphs": _GRAPHS}),
    ("sglang.triton-swa-deterministic",
     {"deterministic inference": (("on",), "off"), "prefill backend": (("triton",), "fa3"),
      "sliding-window KV pool": (("on",), "off")}),
    ("sglang.fa3-swa-topk",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative topk": ((2, 8), 1),
      "verify backend": (("fa3", "fa4"), "triton"), "sliding-window KV pool": (("on",), "off")}),
    ("sglang.encoder-decode-lengths",
     {"encoder-decoder": (("on",), "off"), "decode backend": (("flashinfer",), "fa3"), "CUDA graphs": _GRAPHS}),
    ("sglang.hybrid-chunk-metadata",
     {**_CHUNKED, "prefill backend": (("flashinfer", "flashmla", "cutlass_mla"), "trtllm_mla"),
      "hybrid backend": (("on",), "off")}),
    ("sglang.fa3-scheduler-metadata",
     {"attention": (("MHA",), "MLA"), "decode backend": (("fa3",), "triton"),
      "FlashAttention schedule": (("for other heads",), "right")}),
    ("vllm.skip-context-zero-fill", _RAGGED),
    ("vllm.empty-context-chunks", _RAGGED),
    ("vllm.lse-log-base", {**_RAGGED, "engine core": _CORE, "MLA prefill backend": (("trtllm_ragged", "flashinfer"), "cudnn")}),
    ("vllm.lse-log-base",
     {"attention": (("MHA",), "MLA"), "cached prefix": _PREFIX, "decode context parallel size": ((2, 8), 1),
      "attention backend": (("FLASHINFER",), "FLASH_ATTN")}),
    ("vllm.quantized-mla-context", {"attention": _MLA, "cached prefix": _PREFIX, "kv_b_proj": (("packed",), "floats")}),
    ("vllm.mla-context-order", {"attention": _MLA, "cached prefix": _PREFIX, "model runner": (("V2",), "V1")}),
    ("vllm.dcp-empty-shard",
     {"attention": _MLA, "decode context parallel size": ((2, 8), 1),
      "decode without KV": (("undefined",), "neutral")}),
    ("vllm.dcp-page-counts",
     {"attention": (("MHA",), "MLA"), "decode context parallel size": ((2, 8), 1),
      "attention backend": (("FLASHINFER",), "FLASH_ATTN")}),
    ("vllm.padded-v-merge",
     {"attention": _MLA, "cached prefix": _PREFIX, "MLA prefill backend": (("flash_attn",), "trtllm_ragged"),
      "FlashAttention pads values": (("on",), "off")}),
    ("vllm.both-empty-merge-cuda", {**_MERGED, "GPU": _NVIDIA}),
    ("vllm.both-empty-merge-triton", {**_MERGED, "GPU": _OTHERS}),
    ("vllm.kv-scale-float",
     {"KV cache scales": (("compressed-tensors",), "others"),
      "attention backend": (("FLASHINFER", "FLASHINFER_MLA"), "TRITON_ATTN")}),
    ("vllm.flashmla-fp8-graph",
     {"attention": _MLA, "attention backend": (("FLASHMLA",), "FLASH_ATTN_MLA"), "full CUDA graphs": _GRAPHS,
      "KV cache dtype": (("fp8", "fp8_e4m3"), "auto")}),
    ("vllm.fa3-dcp-graph",
     {"attention": (("MHA",), "MLA"), "attention backend": (("FLASH_ATTN",), "FLASHINFER"), "full CUDA graphs": _GRAPHS,
      "decode context parallel size": ((2, 8), 1)}),
    ("vllm.gdn-uniform-decode",
     {"linear attention": (("on",), "off"), "speculative decoding": (("on",), "off"), "full CUDA graphs": _GRAPHS,
      "model runner": (("V1",), "V2")}),
    ("vllm.prefill-context-merge", {"attention": _MLA, "cached prefix": _PREFIX, "GPU": _NVIDIA}),
]  # fmt: skip


@pytest.mark.parametrize("fix, way", WAYS)
def test_each_fact_decides(fix, way):
    """With all of them the bug is hit; one wrong value, and it is not; one unknown, and it is possible."""
    asks = BY_ID[fix].hits
    # What only the other way to the bug asks for has a value that never fulfils it
    base = {name: known(0) for name in asks.names} | {name: known(values[0]) for name, (values, _) in way.items()}
    assert set(way) <= asks.names
    for name, (values, wrong) in way.items():
        for value in values:
            assert asks({**base, name: known(value)}.__getitem__).verdict == HIT, (name, value)
        assert asks({**base, name: known(wrong)}.__getitem__).verdict == NOT_HIT, (name, wrong)
        assert asks({**base, name: unknown("")}.__getitem__).verdict == POSSIBLE, name


@pytest.mark.parametrize("fix", BY_ID)
def test_no_fact_is_left_out(fix):
    ways = [way for name, way in WAYS if name == fix]
    assert set().union(*ways) == BY_ID[fix].hits.names


def test_code_that_nobody_judged_is_at_most_possible():
    arguments = ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL)
    assert answer(*arguments, code=ledger.UNKNOWN).verdict == POSSIBLE
    assert answer("sglang.zero-kv-rows", "0.5.9", "R1", "h100", SGL, code=ledger.UNKNOWN).verdict == NOT_HIT


@pytest.mark.parametrize("odd", [[1], {"quant_method": "x", "config_groups": 1}])
def test_a_config_of_an_unheard_of_form_leaves_the_fact_unknown(odd):
    config = {**R1, "quantization_config": odd}
    deployment = Deployment("vllm", Version("0.25.1"), config, gpus.named("h100"), read(["vllm", "serve", "m"]))
    found = diagnosis.answer(BY_ID["vllm.quantized-mla-context"], ledger.AFFECTED, "", diagnosis.facts(deployment))
    assert found.verdict == POSSIBLE and "config.json has a form that is not read" in found.reasons[0]


def test_three_valued_logic():
    facts = {"a": known("x", "said"), "b": Fact(("x", "y")), "c": unknown("ask"), "n": known(3)}.__getitem__
    assert [Is("a", "x")(facts).verdict, Is("a", "y")(facts).verdict, Is("c", "x")(facts).verdict] == [HIT, NOT_HIT, POSSIBLE]
    assert Is("b", "x", "y")(facts).verdict == HIT and Is("b", "x")(facts).verdict == POSSIBLE
    assert Is("b", "z")(facts).verdict == NOT_HIT
    assert Above("n", 2)(facts).verdict == HIT and Above("n", 3)(facts).verdict == NOT_HIT
    assert AllOf(Is("c", "x"), Is("a", "y"))(facts).verdict == NOT_HIT, "a missing fact matters only where it decides"
    assert AllOf(Is("c", "x"), Is("a", "x"))(facts).reasons == ("c: unknown (ask)",)
    assert AnyOf(Is("c", "x"), Is("a", "x"))(facts).reasons == ("a: x (said)",)
    assert AnyOf(Is("c", "x"), Is("a", "y"))(facts).verdict == POSSIBLE
    assert AnyOf(Is("b", "z"), Is("a", "y"))(facts).verdict == NOT_HIT


@pytest.mark.parametrize(
    "name, capability", [("H100", 90), ("NVIDIA H200", 90), ("GB200", 100), ("RTX 5090", 120), ("sm_103", 103), ("sm90a", 90)]
)
def test_gpus_are_known_by_the_names_that_people_use(name, capability):
    assert gpus.named(name).capability == capability


def test_an_unknown_gpu_is_none():
    assert gpus.named("h1000") is None and gpus.named("") is None
