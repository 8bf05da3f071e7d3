"""vllm.flash-attn-group-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

BUG = KnownBug(
    id="vllm.flash-attn-group-window",
    title="Global layers forget what is behind the window that other layers of their KV cache group have",
    symptom="Long prompts lose what is said early, while short ones are right: FLASH_ATTN gives each layer the group's window.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.25.0,<0.28.0",),
    code=("vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm", pull=51756),
    hits=AllOf(
        Is("attention backend", "FLASH_ATTN"),
        Is("sliding-window layers", ON),
        AnyOf(
            Is("--disable-hybrid-kv-cache-manager", ON),
            Is("--kv-transfer-config.kv_connector", "LMCacheConnectorV1", "LMCacheMPConnector", "FlexKVConnectorV1"),
            Is("--kv-transfer-config.kv_connector", "HF3FSKVConnector", "ExampleConnector"),
            Is("--kv-offloading-backend", "lmcache"),
            AllOf(Is("--kv-transfer-config.kv_connector", "MultiConnector"), Unseen("one of these in a MultiConnector")),
        ),
        Unseen("layers of global attention of the same head size, as of Gemma-3 and gpt-oss"),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`, or with the hybrid KV cache manager.",
)
