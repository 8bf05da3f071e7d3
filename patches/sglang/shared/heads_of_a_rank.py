"""How many heads and KV heads a rank has, as FlashInfer's index updaters ask for them."""

#: Witnesses: the engine's functions that say it, each release's own
WITNESSES = (
    "sglang.srt.layers.dp_attention:get_attention_tp_size",
    *(f"sglang.srt.configs.model_config:ModelConfig.get_{name}" for name in ("num_kv_heads", "max_num_attention_heads")),
    *(f"sglang.srt.runtime_context:ParallelContext.attn_{name}" for name in ("dcp_size", "tp_size")),
    "sglang.srt.runtime_context:get_parallel",
    *(f"sglang.srt.runtime_context:_install_{name}" for name in ("parallel_properties", "derived_widths")),
)
