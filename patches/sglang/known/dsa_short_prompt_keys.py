"""sglang.dsa-short-prompt-keys, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT

_PARALLEL = ("--enable-dsa-prefill-context-parallel", "--enable-nsa-prefill-context-parallel", "--enable-prefill-cp")

BUG = KnownBug(
    id="sglang.dsa-short-prompt-keys",
    title="GLM-5 forgets what a short prompt said once a conversation passes 2048 tokens",
    symptom="Index keys of prefills that end before token 2048 are rotated twice, and the indexer does not find them later.",
    symptoms=(LONG_PROMPT, CACHED_PREFIX),
    releases=(">=0.5.9,<0.5.19",),
    code=(
        "sglang.srt.layers.attention.nsa.nsa_indexer:Indexer._get_k_bf16",
        "sglang.srt.layers.attention.dsa.dsa_indexer:Indexer._get_k_bf16",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Is("architecture", "GlmMoeDsaForCausalLM"),
        AnyOf(Not(Since("0.5.15")), Given("$SGLANG_DISABLE_DSA_INDEXER_FUSION")),
        *(Not(Given(flag)) for flag in _PARALLEL),
        Unseen("conversations that begin with short prompts and grow beyond 2048 tokens"),
    ),
    avoid="From 0.5.15 on, leave SGLANG_DISABLE_DSA_INDEXER_FUSION unset; nothing avoids it in the releases before.",
)
