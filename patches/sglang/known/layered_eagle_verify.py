"""sglang.layered-eagle-verify, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

_MIMO = "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"
_STEP = "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"

BUG = KnownBug(
    id="sglang.layered-eagle-verify",
    title="Garbage from MiMo-V2 and Step-3.5 with their draft layers where no CUDA graph runs the step",
    symptom="Verification of drafts outside CUDA graphs attends with the lengths and pages of an earlier batch.",
    symptoms=(SPECULATION, GARBAGE),
    releases=(">=0.5.13,<0.5.16",),
    code=("sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleWorkerV2.verify",),
    upstream=Upstream("sgl-project/sglang", pull=27006),
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        AnyOf(
            Given("--enable-multi-layer-eagle"),
            AllOf(Is("speculative algorithm", "EAGLE"), Is("architecture", *_MIMO, *_STEP)),
        ),
        AnyOf(Is("CUDA graphs", OFF), Unseen("whether more requests run at once than the graphs hold")),
        Not(AllOf(Is("--device", "npu"), Since("0.5.14"))),
        Not(Is("--disaggregation-mode", "prefill")),
    ),
    avoid="Leave CUDA graphs on, and set `--max-running-requests` no higher than the largest batch that they hold.",
)
