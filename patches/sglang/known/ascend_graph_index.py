"""sglang.ascend-graph-index, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="sglang.ascend-graph-index",
    title="Models without MLA, and Kimi-VL, end at their first decode step in graphs on Ascend",
    symptom="The replay of a graph asks the model for an index head and ends in an AttributeError (index_head_dim).",
    symptoms=(DIES, GRAPHS),
    releases=(">=0.5.3,<0.5.3.post3",),
    code=("sglang.srt.model_executor.npu_graph_runner:NPUGraphRunner.replay",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        AnyOf(
            Is("attention", "MHA"),
            Is("architecture", "DeepseekVL2ForCausalLM", "KimiVLForConditionalGeneration", "MiniCPM3ForCausalLM"),
        ),
        Is("decode backend", "ascend"),
        Is("CUDA graphs", ON),
    ),
    avoid="Set --disable-cuda-graph.",
)
