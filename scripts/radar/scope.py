"""Which code of an engine decides attention: by package, and by the witnesses of the catalogue."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from attnfix.compat.gate import index

ROOT = Path(__file__).resolve().parents[2]

#: Paths below the package's folder whose code counts whole. Beginnings, as regular expressions
_CORE = {
    "vllm": (
        r"v1/(attention|core|worker|spec_decode|kv_offload|simple_kv_offload|hisparse|sample/rejection)|v1/(kv_cache_interface"
        r"|cudagraph_dispatcher|request)|attention/|core/|worker/|spec_decode/|distributed/kv_transfer|forward_context"
        r"|model_executor/layers/(attention|mamba|rotary_embedding|fla/|kda|mla|lightning_attn|sparse_attn|hpc|deepseek)"
        r"|model_executor/layers/quantization/kv_cache|third_party/flash_linear_attention|compilation/(cuda_graph|breakable)"
    ),
    "sglang": (
        r"srt/(layers/(attention|rotary_embedding|radix|cp/|dcp/|dp_attention|logits_processor)|mem_cache|model_executor"
        r"|speculative|disaggregation|kv_canary)|srt/managers/(schedul|cache_controller|overlap|tp_worker|mm_utils|hisparse)"
        r"|srt/(batch_overlap|two_batch_overlap|compilation|hardware_backend/[a-z]+/(attention|graph))"
        r"|srt/layers/quantization/kv_cache|kernels/ops/(attention|mamba|kvcache|speculative)|jit_kernel/"
    ),
}
#: Paths whose parts count where their text speaks of attention
_BESIDE = {
    "vllm": r"model_executor/|models/|platforms/|config|engine/arg_utils|v1/(engine|sample|pool)|compilation/|lora/|multimodal/"
    r"|distributed/|utils|envs|_custom_ops",
    "sglang": r"srt/(models|configs|server_args|arg_groups|platforms|hardware_backend|layers|managers|multimodal|model_loader"
    r"|lora|environ|runtime_context|distributed|utils|elastic_ep|batch)|kernels/|jit_kernel",
}
_LEFT_OUT = r"(^|/)(tests?|benchmarks?|moe|fused_moe|tool_parsers|function_call|reasoning)(/|$)|(^|/)(test|bench)_"
#: A part that speaks of attention
SPEAKS = re.compile(
    r"attn|attention|kv_?cache|kvcache|rotary|rope|window|causal|mask|q_norm|k_norm|qk_|prefix|block_table|block_size|page|"
    r"mamba|ssm|gdn|linear_attn|cu_seqlens|seq_lens|cuda_?graph|draft|spec|sink|scale|chunk|image|vision|flash|mla|radix",
    re.IGNORECASE,
)
#: Paths of what computes, holds or plans attention: a change there is the likelier mend
_NEAR = re.compile(r"attention|attn|mem_cache|kv_cache|kv_offload|mamba|spec|block_table|rotary")
#: Names and tokens that are about attention, wherever they stand
ABOUT = re.compile(
    r"attn|attention|kv_?cache|rotary|rope|sliding|window|causal|mask|q_norm|k_norm|qk_norm|cu_seqlens|seq_lens|block_size|"
    r"cuda_?graph|mamba|backend",
    re.IGNORECASE,
)
#: Names of what holds, keys or plans cached keys and values
MAKERS = re.compile(
    r"Builder|Pool|Allocator|BlockTable|RadixCache|block_hash|hash_block|cache_key|extra_key|CacheManager|Coordinator|"
    r"Backend\b|GraphRunner|CudaGraph|CUDAGraph|Speculator|Proposer|ForwardBatch|RotaryEmbedding|metadata",
)


@cache
def kind(engine: str, path: str) -> str | None:
    """`core`, `beside`, or None for a file that decides nothing about attention. path: below the package's folder."""
    if re.search(_LEFT_OUT, path):
        return None
    if re.match(_CORE[engine], path) or _module(engine, path) in _modules(engine):
        return "core"
    return "beside" if re.match(_BESIDE[engine], path) else None


def _module(engine: str, path: str) -> str:
    return f"{engine}/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _modules(engine: str) -> set[str]:
    return {module for module, _ in witnesses(engine)}


def decides(path: str, text: str) -> bool:
    """Whether a part decides attention: it stands in a file of the core, or speaks of it. path: with the package's folder."""
    return core(path) or bool(SPEAKS.search(text))


def nearness(path: str, name: str) -> float:
    """How much likelier than elsewhere a change of that part is a mend."""
    if _NEAR.search(path):
        return 1.5
    return 1.0 if "/model" in path and not core(path) and ABOUT.search(name) else 0.0


def core(path: str) -> bool:
    """path: with the package's folder."""
    engine, _, below = path.partition("/")
    return kind(engine, below) == "core"


@cache
def witnesses(engine: str) -> dict[tuple[str, str], set[str]]:
    """{(module, qualified name): fixes that judge by it}."""
    known, found = index.read(ROOT / "patches" / engine / "index.json"), dict[tuple[str, str], set[str]]()
    for fix in known.fixes:
        for place in known.line(f"fix {fix}")["code_paths"]:
            module, _, qualname = place.partition(":")
            found.setdefault((module, qualname), set()).add(fix)
    return found
