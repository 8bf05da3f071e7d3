"""What goes between the parts of a differential run, and what an engine's part offers. Imports no engine and no torch.

An engine's part is a package `tests.differential.<engine>` with two modules:

`space`, which imports no engine, runs in the process that draws:

    SPACE: Space                # see there

`server`, which runs in a side's process:

    def load() -> None          # once, before the forks: import what every case needs, put the stand-ins in place
    class Server:               # one for each case, in a fork
        def __init__(self, case: Case): ...     # constructs by the engine's own constructors; raises Refused
        def step(self) -> Step | None: ...      # one step of the engine; None where nothing is left to do
    MUTATIONS: dict[str, Callable[[], AbstractContextManager]]  # ways to break this harness, each of which must be seen
    SEEN_IN: dict[str, Settings]        # of a mutation, where it is not seen with any settings
    FAULTS: dict[str, Callable[[], None]]   # a fault that a correction of an earlier version had, put back for this process

Nothing in a part knows which side it is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

#: axis -> value, both in the engine's own flag words
Settings = dict[str, Any]

#: What a request is doing in a step
#: Of the whole step: "padded", where the model got more rows; "replayed", where its layers ran in a CUDA graph; "idle"
KINDS = ("fresh", "chunk", "cached", "decode", "verify", "draft", "padded", "replayed", "idle")


class Request(TypedDict):
    """One request to the server. arrives: at which step, counted from 0. common: [an earlier request, how many tokens its
    prompt begins with as that one's text does, which is its prompt and its answer], or None.

    Left out of cases that have none: adapter, by its number, 0 for the model alone; image, [where it begins, how many tokens
    of the prompt it takes, which one], laid over the text. `common` is of the text alone: an equal text has other keys under
    another adapter, and behind another image. Images of two lengths are two images. No prompt begins with one.
    """

    prompt: int
    output: int
    arrives: int
    common: list[int] | None
    adapter: NotRequired[int]
    image: NotRequired[list[int]]


class Case(TypedDict):
    """What one fork runs, stock and patched alike. steps: at most. seed: of tokens, tensors and accepted drafts."""

    engine: str
    release: str
    settings: Settings
    requests: list[Request]
    steps: int
    seed: int


class Known(NamedTuple):
    """A bug that no fix corrects. what: in words, with its report. without: settings in which it is not there."""

    what: str
    without: Settings


@dataclass(frozen=True)
class Space:
    """What can be drawn for an engine.

    axes: values of each setting; the first one is the plainest, where a shrunk case goes back to. Those of different axes are
    drawn freely but for what follows; what the engine refuses even so is counted as refused.
    edges: of the settings, the lengths at which something changes: the page, the window, the chunk, the limit of the context.
    impossible: why these settings cannot be constructed here, or None. Such a case is not drawn; the reasons are listed in the
    docs. It is asked with some axes only, too, where pairs are counted.
    of_release: settings that are the same in all cases of a release.
    refused: why a release refuses these settings by itself, or None: nothing is drawn that ends before its first step. What
    some release may serve has no place in `impossible`, and what this one may serve none here.
    known: of a release, settings, what is first wrong, the kinds of that step and the error of its worst row, the bug that was
    reported to upstream, or that a later release mends, and that no fix corrects, or None. A fix for something else may count
    corrections there, and is not to blame. What is wrong: the name of a layer, whose error is infinite where it returned no
    numbers; or an error's type and message, then without kinds.
    crowd: with how many tokens all of eight or more requests begin alike, or None: some code is for that alone.
    often: a length that more prompts have than chance gives it, or None.
    interpreted: whether a kernel runs in Triton's interpreter with these settings: such cases are slow, and drawn less often.
    """

    axes: Mapping[str, Sequence[Any]]
    edges: Callable[[Settings], Sequence[int]]
    limit: Callable[[Settings], int]
    impossible: Callable[[Settings], str | None] = lambda settings: None
    interpreted: Callable[[Settings], bool] = lambda settings: False
    of_release: Callable[[str], Settings] = lambda release: {}
    refused: Callable[[str, Settings], str | None] = lambda release, settings: None
    known: Callable[[str, Settings, str, Sequence[str], float], Known | None] = lambda *of_a_case: None
    crowd: Callable[[Settings], int | None] = lambda settings: None
    often: Callable[[Settings], int | None] = lambda settings: None


class Refused(Exception):
    """The engine itself refuses these settings, or this request."""


@contextmanager
def refusing(*more: type[BaseException]) -> Iterator[None]:
    """What the engine raises in here is its refusal, of the common kinds or `more`.

    It stands around the engine's checks of a config, and around the constructors that refuse what their kernels cannot do;
    not around a step.
    """
    kinds: tuple[type[BaseException], ...] = (ValueError, NotImplementedError, AssertionError, *more)
    try:
        yield
    except kinds as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


class Tolerance(NamedTuple):
    """Relative error up to which a result is right, and from which it is wrong. Between the two is the band."""

    right: float
    wrong: float


@dataclass
class Output:
    """What one layer returned for the valid rows of one step, against float64 (`reference.compare` makes it).

    name: of the layer, and the rank where there are several. error: of the worst row. at: which row that is, in words.
    bits: a digest of the valid rows as they are.
    """

    name: str
    error: float
    bits: str
    tolerance: Tolerance
    at: str = ""


@dataclass
class Step:
    """kinds: of its rows (`KINDS`), each once. metadata: a digest of what the builders made of it (`reference.digest`)."""

    kinds: list[str]
    outputs: list[Output] = field(default_factory=list)
    metadata: str = ""


class Failure(TypedDict):
    """An exception of a step. where: the innermost function that is the engine's or attnfix's, as module:function:line."""

    type: str
    message: str
    where: str


class Answer(TypedDict, total=False):
    """What a side's fork says of a case. ended: "done", "refused", "raised", "hung" or "died".

    corrections: fix id -> how many were counted; effective: fixes whose target was called while armed.
    corrected_by: fix id -> the first step (counted from 0; -1 is construction) in which a correction was counted.
    missing: fix id -> its state, where it is needed and does not stand: such a case says nothing of it.
    """

    ended: str
    why: str
    error: Failure
    steps: list[dict[str, Any]]
    corrections: dict[str, int]
    corrected_by: dict[str, int]
    effective: list[str]
    missing: dict[str, str]
    seconds: float
