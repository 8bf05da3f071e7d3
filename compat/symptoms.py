"""What an operator sees of a bug, in words that many bugs share; docs/symptoms.md leads from them to the fixes."""

from __future__ import annotations

DIES = "The server dies"
CACHED_PREFIX = "Wrong answers on a prefix-cache hit (follow-up turn, shared system prompt)"
LONG_PROMPT = "Wrong answers to long prompts, right ones to short prompts"
SHARED_BATCH = "Wrong only under concurrency"
SPECULATION = "Speculative decoding accepts too few drafts, or changes the text"
GRAPHS = "Wrong with CUDA graphs, right without them"
KV_SCALES = "Wrong answers with an FP8 KV cache, or with calibrated KV scales"
PARALLEL = "Wrong answers or a crash with context parallelism or data-parallel attention"
CONTEXT_LIMIT = "Wrong answers or a crash near the context length"
IMAGES = "Images are misread"
BACKEND = "Worse answers than on another attention backend"
GARBAGE = "Answers turn into garbage (repetition, random tokens)"
SLOW = "Slower than necessary"

#: In the order of the page
SYMPTOMS = (
    DIES, CACHED_PREFIX, LONG_PROMPT, GARBAGE, SHARED_BATCH, SPECULATION, GRAPHS, KV_SCALES, PARALLEL, CONTEXT_LIMIT, IMAGES,
    BACKEND, SLOW,
)  # fmt: skip
