"""Proof of vllm.gdn-launch-assert: requests with one token and no drafts beside requests whose drafts are verified.

Spared: drafts alone, beside prefills of several tokens, and steps without any drafts; requests of zero drafts.
"""

from attnfix.patches.lab.vllm.gated_delta import GatedDelta, case, step, verify

from . import wrap

TWO, FOUR = step(a=20, b=9), step(a=20, b=9, c=31, d=16)


def _without_twos(real):
    """A class like the correction's, for a length of two."""
    import torch

    class Starts(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            found = super().__torch_function__(function, types, args, kwargs or {})
            hides = function is torch.Tensor.__eq__ and args[1] == 2
            return torch.zeros_like(found.as_subclass(torch.Tensor)) if hides else found

    return Starts


class Proof(GatedDelta):
    needs = "GDNAttentionMetadataBuilder.build: num_decode_draft_tokens_cpu"
    absent = "Gated DeltaNet's builder knows no drafts"
    #: The last token of a prompt, or a decode without drafts: last, first, between, and beside a prefill
    bug = (
        case(TWO, step(a=verify(), b=1), step(a=verify(), b=verify())),
        case(TWO, step(b=1, a=verify()), drafts=2),
        case(FOUR, step(a=verify(kept=2), b=1, c=verify()), step(b=1, a=verify(), c=verify())),
        case(FOUR, step(b=1, a=verify(), d=5, c=1), step(a=verify(), b=verify(), d=5, c=1), drafts=1),
    )
    spared = (
        case(TWO, step(a=verify(kept=2), b=verify()), step(c=7, a=verify()), step(b=verify(), c=5, a=verify())),
        case(TWO, step(a=1, b=1), step(b=1, a=5)),
        case(TWO, step(a=verify(), b=verify(kept=2)), step(a=verify(), b=verify(drafts=0))),
    )
    broken = {
        "no request is seen": (wrap, "states_are_in_the_first_block", lambda accepted, requests: False),
        "lengths keep their ones": (wrap.starts_without_decodes, lambda real: real().__base__),
        "only lengths of two are left out": (wrap.starts_without_decodes, _without_twos),
    }
