"""sglang.fa3-cross-lengths, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, IMAGES, SHARED_BATCH

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"

FIX = Fix(
    id="sglang.fa3-cross-lengths",
    title="Crash or garbage when encoder-decoder requests share a batch (fa3)",
    symptom=(
        "Llama 3.2 Vision (mllama) on fa3: once two requests are prefilled together, the server dies with `Only encoder size 1 "
        "is supported for now`. In decode by CUDA graphs (MossVL, too), requests whose images differ in size from the first "
        "one's are answered with garbage, without an error."
    ),
    symptoms=(DIES, IMAGES, SHARED_BATCH),
    cause=(
        "The metadata of a batch has one encoder length, that of the first request. At replay of a decode graph it counts for "
        "all: they attend to too much or too little of their images, and their texts are read from the wrong slots. Without "
        "a graph, a batch of several requests is refused."
    ),
    correction=(
        "Each request gets the length of its own encoder, its slots, and the slots of its text behind them, as from 0.5.13 on. "
        "Pages of one token alone: with larger ones no release is right."
    ),
    upstream=Upstream("sgl-project/sglang", pull=25045),
    hardware="NVIDIA Hopper (fa3: for Llama 3.2 Vision the default from 0.5.8 on)",
    default=True,
    default_reason="crash and silent wrong output; later releases lay out such batches in the same way",
    targets=(
        Target(
            wrap.init_forward_metadata,
            needed=wrap.several_encoders,
            paths=(f"{_BACKEND}.init_forward_metadata",),
            repeatable=True,
        ),
        Target(
            wrap.init_forward_metadata_replay_cuda_graph,
            needed=wrap.several_encoders_in_graph,
            paths=(f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",),
            repeatable=True,
        ),
    ),
    # What the layout is made of, where it is kept, and what reads it
    witnesses=(
        f"{_MODULE}:FlashAttentionMetadata",
        f"{_MODULE}:normal_decode_set_metadata",
        "sglang.srt.layers.attention.triton_ops.metadata:normal_decode_set_metadata",
        "sglang.kernels.ops.attention.metadata:normal_decode_set_metadata",
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}._bind_metadata_buffers",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}.forward_extend",
        f"{_BACKEND}.forward_decode",
        f"{_BACKEND}._init_local_attn_metadata",
        f"{_BACKEND}._maybe_init_local_attn_metadata",
        f"{_BACKEND}._update_local_attn_metadata_for_replay",
        f"{_BACKEND}._maybe_update_local_attn_metadata_for_replay",
        f"{_BACKEND}._compute_scheduler_metadata",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
    ),
    cost="A few small kernels per batch of an encoder-decoder model, and fewer waits for the GPU; nothing for other models.",
    avoid=(
        "Set `--attention-backend flashinfer`, which keeps each request's encoder length; up to 0.5.9 add "
        "`--disable-cuda-graph` (sglang.encoder-decode-lengths). Decode may get slower."
    ),
    expect=(
        "On one replica with fa3, send several requests with images of different sizes at once, at temperature 0: the server "
        "stays up, and each answer becomes that of the same request sent alone."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("encoder-decoder", ON),
        AnyOf(Is("prefill backend", "fa3", "fa4"), Is("decode backend", "fa3", "fa4")),
    ),
)
