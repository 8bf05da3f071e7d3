"""vllm.dcp-sinks, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL

_GRANITE = "GraniteForCausalLM", "GraniteMoeForCausalLM"
_LAGUNA = AllOf(Is("architecture", "LagunaForCausalLM"), Unseen("`swa_attention_sink_enabled` in config.json"))
_CONNECTOR = AllOf(
    Is("KV connector", ON),
    AnyOf(Not(Since("0.22.0")), Unseen("whether the connector switches the hybrid KV cache manager off")),
)

BUG = KnownBug(
    id="vllm.dcp-sinks",
    title="Attention sinks are left out under decode context parallelism (FLASH_ATTN)",
    symptom=(
        "A model with sinks answers worse with `--decode-context-parallel-size` above 1, most of all at the start. Windows "
        "are refused, unless the hybrid KV cache manager is off."
    ),
    symptoms=(PARALLEL,),
    releases=(">=0.11.1,<=0.33.0",),
    code=("vllm.v1.attention.backends.flash_attn:FlashAttentionImpl._forward_with_dcp",),
    upstream=Upstream("vllm-project/vllm", report="vllm-dcp-sinks"),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Above("decode context parallel size", 1),
        AnyOf(
            AllOf(
                AnyOf(Is("attention sinks", ON), _LAGUNA),
                AnyOf(Given("--disable-hybrid-kv-cache-manager"), _CONNECTOR),
            ),
            AllOf(Since("0.29.0"), Is("architecture", *_GRANITE), Unseen("`attention_sinks` in config.json")),
        ),
    ),
    avoid="Leave `--decode-context-parallel-size` out.",
)
