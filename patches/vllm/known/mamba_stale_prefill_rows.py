"""vllm.mamba-stale-prefill-rows, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS, SHARED_BATCH

BUG = KnownBug(
    id="vllm.mamba-stale-prefill-rows",
    title="Mamba layers decode with old states: a graph's spare rows still count as prompts (full CUDA graphs)",
    symptom="Under load, text goes wrong for good after a step whose spare rows last held prompts in prefill.",
    symptoms=(GARBAGE, GRAPHS, SHARED_BATCH),
    releases=(">=0.19.0,<0.22.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._build_attention_metadata",),
    upstream=Upstream("vllm-project/vllm", pull=41873, issue=41841),
    hits=AllOf(
        AnyOf(
            AllOf(
                Is("recurrent layers", ON),
                Not(Is("architecture", "MiniMaxForCausalLM", "MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM")),
            ),
            Is("architecture", "FalconMambaForCausalLM", "Mamba2ForCausalLM", "MambaForCausalLM"),
        ),
        Is("linear attention", OFF),
        Is("full CUDA graphs", ON),
        Is("model runner", "V1"),
        Unseen("a padded decode, in spare rows of prompts aborted, preempted, moved in mid-prompt, or answered in one token"),
    ),
    avoid="Start with `--enforce-eager`.",
)
