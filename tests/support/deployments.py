"""Models and launch commands of the deployments that the data modules in tests/fixes name."""

from __future__ import annotations

DIMS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
R1 = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", **DIMS,
      "quantization_config": {"quant_method": "fp8"}}  # fmt: skip
V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", **DIMS}
V32 = {**R1, "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_topk": 2048}
V4 = {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "sliding_window": 128}
AWQ = {**R1, "quantization_config": {"quant_method": "awq", "modules_to_not_convert": ["lm_head"]}}
INT4 = {**R1, "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"format": "pack-quantized"}}}}  # fmt: skip
FP8_KV = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}}  # fmt: skip
AWQ_LEFT = {**R1, "quantization_config": {"quant_method": "awq", "modules_to_not_convert": ["kv_b_proj"]}}
NEXT = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "layer_types": ["linear_attention", "full_attention"]}  # fmt: skip
QWEN4 = {**NEXT, "architectures": ["Qwen4ExpForCausalLM"], "model_type": "qwen4_exp"}
QWEN35 = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {"linear_num_value_heads": 32}}
QWEN35_27B = {**QWEN35, "text_config": {"linear_num_value_heads": 48, "linear_num_key_heads": 16}}
QWEN_VL = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
           "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}  # fmt: skip
GLM41V = {"architectures": ["Glm4vForConditionalGeneration"], "text_config": {
          "rope_scaling": {"rope_type": "default", "mrope_section": [8, 12, 12]}}}  # fmt: skip
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
LLAMA_GQA = {**LLAMA, "num_attention_heads": 32, "num_key_value_heads": 8}
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
           "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": False}}  # fmt: skip
#: Its settings of YaRN stand beside the language model's
MINISTRAL3 = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "ministral3",
              "max_position_embeddings": 262144,
              "rope_parameters": {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384,
                                  "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}}  # fmt: skip
GEMMA2 = {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "sliding_window": 4096}
UNCAPPED = {**GEMMA2, "attn_logit_softcapping": None}
GROK = {"architectures": ["Grok1ForCausalLM"], "attn_logit_softcapping": 30.0}
GEMMA3 = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 512}
GEMMA3_VL = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"sliding_window": 1024}}
PALIGEMMA = {"architectures": ["PaliGemmaForConditionalGeneration"], "model_type": "paligemma", "text_config": {}}
GEMMA4_VL = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
             "text_config": {"use_bidirectional_attention": "vision"}}  # fmt: skip
DOTS_OCR = {"architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr"}
WHISPER = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "is_encoder_decoder": True}
VOXTRAL_REALTIME = {"architectures": ["VoxtralRealtimeGeneration"], "model_type": "voxtral_realtime"}
QWEN2_VL = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
RING = {**V2, "architectures": ["BailingMoeV2_5ForCausalLM"], "model_type": "bailing_hybrid"}
EXAONE4 = {"architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "sliding_window": 4096,
           "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
LING = {"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "partial_rotary_factor": 0.5}
KIMI_VL = {"architectures": ["KimiVLForConditionalGeneration"], "text_config": {"kv_lora_rank": 512}}
MLLAMA = {"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama"}
NEMOTRON = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"}
GRANITE = {"architectures": ["GraniteMoeHybridForCausalLM"], "layer_types": ["attention"]}
W8A8 = {**R1, "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"format": "int-quantized"}}}}  # fmt: skip
W8A8_LEFT = {**W8A8, "quantization_config": {**W8A8["quantization_config"], "ignore": ["re:.*kv_b_proj"]}}
#: Kimi-K2 Thinking and what was quantised like it: experts alone
K2 = {**INT4, "num_hidden_layers": 61, "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"]}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}}  # fmt: skip
K25 = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": K2,
       "quantization_config": K2["quantization_config"]}  # fmt: skip
EXPERTS = {**INT4, "num_hidden_layers": 61, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {
           "group_0": {"format": "pack-quantized", "targets": ["re:.*mlp.experts.*_proj"]}}}}  # fmt: skip
#: The first three layers are left as they are
SOME = {**INT4, "num_hidden_layers": 61, "quantization_config": {**INT4["quantization_config"],
        "ignore": ["re:model.layers.[0-2]..*"]}}  # fmt: skip
ENDLESS = {**INT4, "quantization_config": {**INT4["quantization_config"], "ignore": ["re:(a+)+$"]}}
NVFP4 = {**R1, "num_hidden_layers": 61, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
         "ignore": ["lm_head", "model.layers.*.self_attn*"]}}  # fmt: skip
NVFP4_SOME = {**NVFP4, "quantization_config": {**NVFP4["quantization_config"], "ignore": ["model.layers.1.self_attn*"]}}
GPT_OSS_120B = {**GPT_OSS, "head_dim": 64}
LLAMA4 = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {}}
#: As it is published, and as its card says for long prompts
QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "max_position_embeddings": 40960}
QWEN3_MOE_YARN = {**QWEN3_MOE, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                "original_max_position_embeddings": 32768}}  # fmt: skip
MODELS = {"gpt-oss-120b": GPT_OSS_120B, "Llama4": LLAMA4,
          "K2": K2, "K2.5": K25, "Experts": EXPERTS, "INT4-some": SOME, "INT4-endless": ENDLESS, "NVFP4": NVFP4,
          "NVFP4-some": NVFP4_SOME,
          "R1": R1, "V2": V2, "V3.2": V32, "V4": V4, "AWQ": AWQ, "INT4": INT4, "AWQ-left": AWQ_LEFT,
          "W8A8": W8A8, "W8A8-left": W8A8_LEFT, "Llama": LLAMA, "Llama-GQA": LLAMA_GQA,
          "Llama-MHA": {**LLAMA_GQA, "num_key_value_heads": 32}, "Kimi-VL": KIMI_VL,
          "Phi-4-mini": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "max_position_embeddings": 131072,
                         "original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope"}},
          "InternLM": {"architectures": ["InternLM2ForCausalLM"], "max_position_embeddings": 32768,
                       "rope_scaling": {"type": "dynamic", "factor": 2.0}},
          "FP8-KV": FP8_KV, "FP8-KV-R1": {**R1, **FP8_KV, "model_type": "deepseek_v3"}, "gpt-oss": GPT_OSS,
          "Ministral3": MINISTRAL3, "gpt-oss-rounded": {**GPT_OSS, "rope_scaling": None},
          "Windows-KV": {**FP8_KV, "sliding_window": 512},
          "Gemma2": GEMMA2, "Gemma3": GEMMA3, "Gemma3-VL": GEMMA3_VL, "PaliGemma": PALIGEMMA, "Mllama": MLLAMA, "Next": NEXT,
          "Next-experts": {**NEXT, "num_experts": 512},
          "Qwen4Exp": QWEN4, "Next-windows": {**NEXT, "sliding_window": 512}, "3.5": QWEN35, "3.5-27B": QWEN35_27B,
          "EXAONE-32B": EXAONE4, "Ling-flash": LING, "Ling-named": {**LING, "rotary_dim": 64},
          "Ling-saved": {"architectures": LING["architectures"], "rope_parameters": {"partial_rotary_factor": 0.5}},
          "EXAONE-1.2B": {**EXAONE4, "sliding_window": None, "layer_types": ["full_attention"]},
          "Qwen3-MoE": QWEN3_MOE, "Qwen3-MoE-YaRN": QWEN3_MOE_YARN, "Qwen-VL": QWEN_VL, "GLM-4.1V": GLM41V,
          "Command-A": {"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "sliding_window": 4096},
          "Gemma4-VL": GEMMA4_VL, "dots.ocr": DOTS_OCR, "Qwen2-VL": QWEN2_VL,
          "Whisper": WHISPER, "Voxtral-realtime": VOXTRAL_REALTIME,
          "Ring": RING, "Ling-2.6": {**RING, "partial_rotary_factor": 0.5},
          "Uncapped": UNCAPPED, "Grok": GROK, "Nemotron": NEMOTRON,
          "Nemotron-bf16": {**NEMOTRON, "torch_dtype": "bfloat16"},
          "Nemotron-pattern": {**NEMOTRON, "hybrid_override_pattern": "M*-"},
          "Nemotron-windows": {**NEMOTRON, "sliding_window": 512},
          "R1-KV": {**R1, "quantization_config": FP8_KV["quantization_config"]}, "Granite": GRANITE,
          "BERT": {"architectures": ["BertModel"], "model_type": "bert"},
          "Falcon-H1": {"architectures": ["FalconH1ForCausalLM"], "mamba_d_state": 256}}  # fmt: skip

SGL = "sglang serve --model-path m "
SPEC = SGL + "--speculative-algorithm EAGLE "
ON_V2 = "SGLANG_ENABLE_SPEC_V2=1 " + SPEC
EXACT = SGL + "--attention-backend triton --enable-deterministic-inference "
WIDE = SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8 "
CHAIN = SPEC + "--speculative-num-steps 3 --speculative-eagle-topk 1 "
TREES = SGL + "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4 "
LONG_CHAIN = SPEC + "--speculative-num-steps 15 --speculative-eagle-topk 1 "
ADAPTIVE = "--speculative-adaptive --speculative-adaptive-config c.json"
BY_DECODE = "--speculative-attention-mode decode "
EXTEND_BY_DECODE = SPEC + BY_DECODE + "--prefill-attention-backend fa3 --decode-attention-backend flashinfer"
ON_CUTEDSL = SGL + "--decode-attention-backend cutedsl_mla --attention-backend fa4"
DSPARK = SGL + "--speculative-algorithm DSPARK --speculative-draft-model-path d "
SHORT_BY_ONE = SPEC + "--speculative-num-steps 2 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8 "
BLOCK = SGL + "--speculative-algorithm DFLASH --speculative-draft-model-path d "
DRAFTS_ON_FLASHINFER = SPEC + "--speculative-draft-attention-backend flashinfer "
NGRAM = SGL + "--speculative-algorithm NGRAM "
TWO = SGL + "--prefill-attention-backend flashinfer --decode-attention-backend flashmla "
SCALED = SGL + "--kv-cache-dtype fp8_e4m3 --quantization-param-path s.json "
DP = SGL + "--tp-size 8 --dp-size 8 --enable-dp-attention "
VLLM = "vllm serve m "
DCP_FLASH = VLLM + "-dcp 2 --attention-backend FLASH_ATTN"
FP8 = VLLM + "--kv-cache-dtype fp8 "
ON_FLASHINFER, SKIP = VLLM + "--attention-backend FLASHINFER ", "--kv-cache-dtype-skip-layers "
BF16 = "--kv-cache-dtype bfloat16 "
COMPUTED, KEPT = "--kv-cache-dtype fp8 --calculate-kv-scales ", "-ac.disable_flashinfer_q_quantization=true "
CACHED, MTP_METHOD = VLLM + "--enable-prefix-caching ", "-sc.method=mtp -sc.num_speculative_tokens=2 "
ONE_DRAFT = "-sc.method=ngram -sc.num_speculative_tokens=1 "
UNCACHED = VLLM + "-dcp 2 --attention-backend FLASHINFER --no-enable-prefix-caching --no-enable-chunked-prefill "
DFLASH_METHOD = "-sc.method=dflash -sc.model=d -sc.num_speculative_tokens=4 "
MTP = VLLM + "-sc.num_speculative_tokens=3 "
BY_BATCH_SIZE = "-sc.num_speculative_tokens_per_batch_size='[[1,4,3],[5,64,0]]' "
DRAFTS_DCP = MTP + "-dcp 2 --attention-backend "
DFLASH = "VLLM_USE_V2_MODEL_RUNNER=1 " + VLLM + "-sc.method=dflash -sc.model=d "
RANKS = VLLM + "--data-parallel-size 8 "
AITER = "ROCM_AITER_UNIFIED_ATTN"
RAGGED = VLLM + "-ac.use_trtllm_ragged_deepseek_prefill=true"
