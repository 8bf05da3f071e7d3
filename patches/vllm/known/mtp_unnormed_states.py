"""vllm.mtp-unnormed-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="vllm.mtp-unnormed-states",
    title="MTP of DeepSeek and GLM-5 accepts fewer drafts from the second on: its states are not normed",
    symptom="With two drafts or more, the acceptance rate falls from the second draft on; text stays right.",
    symptoms=(SPECULATION,),
    releases=(">=0.11.0,<0.17.0", ">=0.18.0,<0.24.0"),
    code=("vllm.model_executor.models.deepseek_mtp:DeepSeekMultiTokenPredictorLayer.forward",),
    upstream=Upstream("vllm-project/vllm", pull=45895),
    hits=AllOf(
        Is("architecture", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        Is("drafts from hidden states", ON),
        Not(Is("--speculative-config.method", "eagle", "eagle3", "dflash")),
        Is("draft tokens of a step", "several"),
    ),
    avoid="Set `num_speculative_tokens` of `--speculative-config` to 1.",
    harm=SLOWER,
)
