"""sglang.fa3-encoder-replay, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"

FIX = Fix(
    id="sglang.fa3-encoder-replay",
    title="Crash with images, often with the first one (vision models on fa3)",
    symptom=(
        "Llama 3.2 Vision (mllama) on fa3, and MossVL in decode: the server dies of a device-side assertion (`index out of "
        "bounds`). From 0.5.16 on it dies with the first image, in a decode graph. In 0.5.13 to 0.5.15.post1, and without a "
        "graph, it dies when a long text and a long image share a batch."
    ),
    symptoms=(DIES,),
    cause=(
        "The slots of a text lie behind its request's encoder in a row of `req_to_token`, which is 4 columns wider than the "
        "context length. Of every row of a batch as many columns are read from there as the longest text has; of a decode "
        "graph, from 0.5.16 on, as many as the context length. They end behind the row where the encoder is longer than what "
        "is left."
    ),
    correction=(
        "Where a column lies behind the row, the row's last one is read. It lies behind the request's own text, so that no "
        "kernel reads what it says. All else stays the engine's. Pages of one token alone: with larger ones no release lays "
        "such a batch out right."
    ),
    upstream=Upstream("sgl-project/sglang", report="sglang-fa3-encoder-replay"),
    hardware="NVIDIA Hopper (fa3: for Llama 3.2 Vision the default)",
    targets=(
        Target(wrap.init_forward_metadata, needed=wrap.has_encoders, paths=(f"{_BACKEND}.init_forward_metadata",)),
        Target(
            wrap.apply_cuda_graph_metadata,
            needed=wrap.has_encoders_in_graph,
            paths=(f"{_BACKEND}._apply_cuda_graph_metadata",),
        ),
    ),
    # What the layout is made of, where it is kept, what says how long a text may be, and what reads it
    witnesses=(
        f"{_MODULE}:FlashAttentionMetadata",
        f"{_MODULE}:normal_decode_set_metadata",
        "sglang.srt.layers.attention.triton_ops.metadata:normal_decode_set_metadata",
        "sglang.kernels.ops.attention.metadata:normal_decode_set_metadata",
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}._init_full_cg_decode_metadata",
        f"{_BACKEND}._bind_metadata_buffers",
        f"{_BACKEND}._set_decode_page_metadata",
        f"{_BACKEND}.forward_extend",
        f"{_BACKEND}.forward_decode",
        f"{_BACKEND}._maybe_init_local_attn_metadata",
        f"{_BACKEND}._maybe_update_local_attn_metadata_for_replay",
        f"{_BACKEND}._compute_scheduler_metadata",
        f"{_BACKEND}._spec_read_seq_len_delta",
        "sglang.srt.layers.attention.utils:assert_buffer_fits",
        "sglang.srt.layers.cp.utils:is_cp_v2_active",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.build_index_table",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
    ),
    remove_when="a release of sglang is served that bounds the columns: attnfix then sees it and does nothing",
    cost=(
        "One small kernel per batch of an encoder-decoder model, over as many numbers as its page table has; no memory and no "
        "wait for the GPU. Nothing for other models."
    ),
    avoid=("Set `--attention-backend flashinfer`, whose plans never read behind a request's row; speed differs from fa3's."),
    expect=(
        "On one replica with fa3, send a request with an image and let it answer with several tokens: stock 0.5.16 and later "
        "die, with the fix the server stays up. Requests without an image are answered as before."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("encoder-decoder", ON),
        AnyOf(Is("prefill backend", "fa3", "fa4"), Is("decode backend", "fa3", "fa4")),
    ),
)
