"""GPU memory that a proof watches: behind what the engine allocates lie random words of others."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from .proof import device, replaced


class GpuMemory:
    """What `torch.zeros`, or another of its kind, allocates on the device `asked` inside `given`: memory of `device()`, behind
    which `others` random words, from `words[0]` to below `words[1]`, belong to others. So what the engine reads or writes there
    stays inside memory of the proof."""

    def __init__(self, draw: Any, others: int, asked: str = "cuda", words: tuple[int, int] = (2**30, 2**31 - 1)):
        self.draw, self.others, self.asked, self.words = draw, others, asked, words
        self.blocks: list[Any] = []

    @contextmanager
    def given(self, name: str = "zeros") -> Any:
        import torch

        real, memory = getattr(torch, name), device()

        def allocate(*args: Any, device: Any = None, **kwargs: Any) -> Any:
            if device != self.asked:
                return real(*args, device=device, **kwargs)
            made = real(*args, device=memory, **kwargs)
            others = torch.randint(*self.words, (self.others,), generator=self.draw).to(made)
            block = torch.cat([made.flatten(), others])
            self.blocks.append((block, others))
            return block[: made.numel()].view(made.shape)

        with replaced(torch, name, allocate):
            yield

    def intact(self) -> bool:
        """Whether what belongs to others is as it was."""
        import torch

        return all(torch.equal(block[-self.others :], others) for block, others in self.blocks)
