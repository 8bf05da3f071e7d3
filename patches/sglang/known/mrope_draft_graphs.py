"""sglang.mrope-draft-graphs, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, IMAGES, SPECULATION

BUG = KnownBug(
    id="sglang.mrope-draft-graphs",
    title="Qwen-VL models accept fewer drafts with CUDA graphs: drafts with M-RoPE all have position zero",
    symptom="The accept length of EAGLE3 is much lower than with --disable-cuda-graph. The text is right.",
    symptoms=(SPECULATION, GRAPHS, IMAGES),
    releases=(">=0.5.2,<0.5.21",),
    code=(
        "sglang.srt.speculative.eagle_draft_cuda_graph_runner:EAGLEDraftCudaGraphRunner.replay",
        "sglang.srt.speculative.eagle_draft_cuda_graph_runner:EAGLEDraftCudaGraphRunner.execute",
    ),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("M-RoPE", ON),
        Is("speculative algorithm", "EAGLE3"),
        Above("speculative steps", 1),
        Is("CUDA graphs", ON),
        Unseen("whether the draft model's rope_scaling has an mrope_section"),
    ),
    avoid="Nothing within the release avoids it; graphs of the draft model go with those of the target.",
)
