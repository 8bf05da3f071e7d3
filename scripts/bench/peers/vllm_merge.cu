// vLLM's CUDA op, registered under a name of ours as the release registers it. -I: ./include, the fetched csrc, torch.
#include <attention/merge_attn_states.cu>
#include <torch/library.h>

TORCH_LIBRARY(attnfix_peers, library) {
  library.def(
      "merge_attn_states(Tensor! output, Tensor!? output_lse, Tensor prefix_output, Tensor prefix_lse, "
      "Tensor suffix_output, Tensor suffix_lse, int? prefill_tokens_with_context, Tensor? output_scale=None) -> ()");
  library.impl("merge_attn_states", torch::kCUDA, &merge_attn_states);
}
