"""vllm.mtp-shared-indices, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="vllm.mtp-shared-indices",
    title="MTP accepts fewer drafts from the second on: they attend to tokens chosen for another request",
    symptom="GLM-5.2 accepts its first draft, and far fewer of the later ones under load; text stays right.",
    symptoms=(SPECULATION,),
    releases=(">=0.23.0,<0.25.0",),
    code=("vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer.propose",),
    upstream=Upstream("vllm-project/vllm", pull=47238),
    hits=AllOf(
        Is("architecture", "GlmMoeDsaForCausalLM", "DeepseekV32ForCausalLM"),
        Is("model runner", "V1"),
        Is("drafts from hidden states", ON),
        Is("draft tokens of a step", "several"),
        Unseen("`index_share_for_mtp_iteration` in config.json"),
    ),
    avoid="Take one draft: `num_speculative_tokens` of 1.",
    harm=SLOWER,
)
