"""sglang.encoder-decode-lengths, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GRAPHS, IMAGES

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashinfer_backend"
_UPDATER, _BACKEND = f"{_MODULE}:FlashInferIndicesUpdaterDecode", f"{_MODULE}:FlashInferAttnBackend"

FIX = Fix(
    id="sglang.encoder-decode-lengths",
    title="Llama 3.2 Vision sees only the top of an image (FlashInfer, CUDA graphs)",
    symptom=(
        "Llama 3.2 Vision (mllama) on FlashInfer answers as if it saw only the top of an image. The shorter the text, the less "
        "it sees. With --disable-cuda-graph it answers right. No error."
    ),
    symptoms=(IMAGES, GRAPHS),
    cause=(
        "At replay of a decode graph, FlashInfer plans its split of the KV from lengths on the host. The engine hands over the "
        "decoder's for cross attention, too: encoder tokens beyond the text's length, rounded up to a chunk of 128 or more, "
        "are attended to by nobody."
    ),
    correction=(
        "At replay, the host's lengths are withheld; FlashInfer then plans from the lengths that its kernel reads, text's and "
        "encoder's each."
    ),
    upstream=Upstream("sgl-project/sglang", pull=21190),
    hardware="any GPU (--attention-backend flashinfer: for Llama 3.2 Vision the default on most)",
    default=True,
    default_reason="silent wrong output; later releases plan from the same lengths",
    targets=(
        Target(wrap.update_cross_attention, needed=wrap.plans_from_the_text, paths=(f"{_UPDATER}.update_cross_attention",)),
    ),
    # What plans, with which lengths, and what calls it with both
    witnesses=(
        f"{_UPDATER}.__init__",
        f"{_UPDATER}.call_begin_forward",
        f"{_MODULE}:fast_decode_plan",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}.forward_decode",
        "sglang.srt.layers.attention.utils:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashinfer_kv_indices_triton",
    ),
    cost=(
        "Two copies of a few hundred bytes from the GPU per decode step of an encoder-decoder model, where the engine waits "
        "for the GPU already; nothing for other models."
    ),
    avoid="Start with `--disable-cuda-graph`: each step plans from the encoder's true lengths; decode gets slower.",
    expect=(
        "On one replica, ask Llama 3.2 Vision a short question about the bottom of an image, at temperature 0: the answer "
        "becomes that of a server with --disable-cuda-graph. Requests without an image run without a graph and stay the same."
    ),
    hits=AllOf(Is("encoder-decoder", ON), Is("decode backend", "flashinfer"), Is("CUDA graphs", ON)),
)
