"""An attempt at vLLM's wrong prompt logprobs beside drafts (upstream issue 53488, pull 53520): there is no fix.

    python -m scripts.attempts.vllm_prompt_logprobs_drafter 0.25.1 0.28.0

The report: with MTP, prompt logprobs of a prompt that runs in piecewise CUDA graphs are computed from hidden states over which
the drafter has written. Two things must be true for that. In the V1 runner the drafter runs before the prompt logprobs are
computed: this reads the runner's code and says whether it does. And the graph of the drafter writes to the memory that the
graph of the target has left its hidden states in: whether it does, torch's allocator decides while graphs are captured on a
GPU. Nothing of the engine decides it on a CPU. A stand-in for the graphs would show what it was made to show, so there is no
red here, and without one no fix.

Seen: the order is the same in all of fourteen releases that were read, from 0.13.0 to 0.33.0, and not only in those that the
report names (0.26-0.28). None of them copies the hidden states.
A correction would be small: a copy of `execute_model_state.hidden_states` around `sample_tokens`, in steps in which a prompt
has logprobs to give. What it needs is a run on a GPU, stock and corrected, with prompts below and above the graphs' limit.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from attnfix.compat.gate import source_files
from attnfix.compat.releases import fetch

_RUNNER = "vllm.v1.worker.gpu_model_runner"


def calls(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name of what is called), without what functions within it call when they are called."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            continue
        if isinstance(child, ast.Call):
            yield child.lineno, ast.unparse(child.func)
        yield from calls(child)


def order(source: str) -> str:
    """Whether drafts are proposed before the books are kept, and whether the hidden states are copied first."""
    methods = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    if "sample_tokens" not in methods:
        return "has no sample_tokens"
    made = sorted(calls(methods["sample_tokens"]))
    drafts = [line for line, name in made if name == "propose_draft_token_ids"]
    books = [line for line, name in made if name == "self._bookkeeping_sync"]
    copied = [name for _, name in made if name.startswith("hidden_states.") and "clone" in name]
    if not drafts or not books:
        return "not read: the calls have other names"
    when = "before" if min(drafts) < min(books) else "behind"
    return f"the drafter runs {when} the prompt logprobs, hidden states {'copied' if copied else 'not copied'}"


def main(releases: list[str]) -> None:
    for release in releases:
        path = source_files.path_of(fetch.fetch("vllm", release, progress=False) / "vllm", _RUNNER)
        print(f"vLLM {release}: {order(path.read_text()) if path else 'has no V1 runner'}")


if __name__ == "__main__":
    main(sys.argv[1:])
