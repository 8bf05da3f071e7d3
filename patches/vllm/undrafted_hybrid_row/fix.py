"""vllm.undrafted-hybrid-row, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SPECULATION

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_BACKENDS = "vllm.v1.attention.backends"

FIX = Fix(
    id="vllm.undrafted-hybrid-row",
    title="Hybrid models repeat or lose words where n-gram drafts nothing",
    symptom=(
        "With n-gram or suffix drafts, a hybrid model (Qwen3-Next, Qwen3.5, NemotronH) repeats or loses words, or turns into "
        "garbage. It happens at a step without drafts behind a step whose drafts were accepted. MTP and EAGLE are hit with "
        "`--no-async-scheduling`, where a grammar refuses the first draft, and with a table of drafts by batch size. No error."
    ),
    symptoms=(SPECULATION, GARBAGE),
    cause=(
        "A verification leaves a state behind each draft, and the next step goes on from that of the last accepted one. A "
        "request without drafts counts as a plain decode, which goes on from the first state. Mamba2 is hit in steps in which "
        "no request has drafts."
    ),
    correction=(
        "Where such a request goes on behind accepted drafts, all decodes without drafts become verifications of one token, as "
        "in 0.32.0. Drafts of `ngram` and `suffix` are never scheduled asynchronously, so they are corrected. Asynchronous "
        "scheduling (`ngram_gpu`, a table of drafts by batch size), Model Runner V2, `mamba_cache_mode` all and other kinds of "
        "layers stay as they are. A step stays so where another request stands before a decode, where a prompt of one token "
        "begins, and with Mamba2 where it computes the last few tokens of a prompt. In 0.11.1-0.12.0 a step beside a prompt "
        "does, too. There `GDNAttentionMetadataBuilder.build` sorts verifications apart by an argsort that is not stable. Up "
        "to 0.18, Mamba2 ends in steps without drafts by itself."
    ),
    upstream=Upstream("vllm-project/vllm", issue=39273),
    hardware="any GPU (hybrid models with speculative decoding; the V1 model runner)",
    targets=(
        Target(
            wrap.build_attention_metadata,
            needed=wrap.goes_on_without_drafts,
            paths=(f"{_RUNNER}._build_attention_metadata",),
        ),
    ),
    # The runner's word on the rows, the builder's reading of it, and the count of accepted drafts
    witnesses=(
        f"{_RUNNER}._prepare_inputs",
        f"{_RUNNER}.execute_model",
        f"{_RUNNER}._update_states_after_model_execute",
        f"{_BACKENDS}.gdn_attn:GDNAttentionMetadataBuilder.build",
        f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
        f"{_BACKENDS}.utils:mamba_get_block_table_tensor",
        f"{_BACKENDS}.utils:reorder_batch_to_split_decodes_and_prefills",
        "vllm.v1.attention.backend:CommonAttentionMetadata",
        f"{_BACKENDS}.utils:CommonAttentionMetadata",
        "vllm.config.model:ModelConfig.rswa_window",
        "vllm.v1.utils:CpuGpuBuffer.copy_to_gpu",
        "vllm.v1.kv_cache_interface:MambaSpec",
        "vllm.v1.worker.block_table:BlockTable.get_device_tensor",
        "vllm.v1.worker.block_table:MultiGroupBlockTable.__getitem__",
        f"{_RUNNER}._get_encoder_seq_lens",
        "vllm.v1.worker.utils:AttentionGroup.get_metadata_builder",
    ),
    # Up to 0.11.0 the same function prepares inputs and asks the builders: between them nothing can be told
    examined=(">=0.11.1",),
    cost=(
        "Some µs of host time in a step of a server with speculative decoding; a copy of one number for each row where it "
        "corrects. Decodes that are corrected run the kernels of verification with one token each. No graph changes."
    ),
    avoid="Take release 0.32.0, or serve without speculative decoding.",
    expect=(
        "On one replica with n-gram drafts, let a hybrid model copy parts of its prompt at temperature 0. Fixed, the answer is "
        "that of a server without drafts, but for sums in another order."
    ),
    stays_out=AnyOf(Is("async scheduling", ON), Is("Mamba2 states in each block", ON)),
    hits=AllOf(
        AnyOf(Is("linear attention", ON), Is("Mamba2 layers that verify drafts", ON)),
        Is("speculative decoding", ON),
        Is("model runner", "V1"),
        # Steps that are scheduled ahead have drafts in each decode, but for these two
        AnyOf(
            Is("async scheduling", OFF),
            Is("drafts by batch size", ON),
            Is("drafts trimmed behind the scheduler", ON),
        ),
    ),
)
