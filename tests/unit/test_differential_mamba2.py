"""The stand-ins of Mamba2's kernels: cut as the engine may cut a request, they give what a sum over all its tokens gives."""

from types import SimpleNamespace

import pytest
import torch

from tests.differential import mamba2_reference
from tests.differential.vllm import mamba2

HEADS, SIZE, STATES, TOKENS, WIDTH = 4, 8, 16, 45, 4
A = -torch.tensor([0.03, 0.1, 0.4, 1.2])
D = torch.full((HEADS,), 0.25)
BIAS = torch.linspace(-0.5, 0.5, HEADS)


def request(seed):
    draw = torch.Generator().manual_seed(seed)
    shapes = {"x": (HEADS, SIZE), "dt": (HEADS,), "B": (1, STATES), "C": (1, STATES)}
    return {name: torch.randn(TOKENS, *shape, generator=draw) for name, shape in shapes.items()}


def true(one):
    """[tokens, heads, size], as a sum over all tokens before."""
    x, dt, b, c = (one[name].double() for name in ("x", "dt", "B", "C"))
    step = torch.nn.functional.softplus(dt + BIAS.double())
    aged = (step * A.double()).cumsum(0)
    weights = (c[:, 0] @ b[:, 0].t())[..., None] * step * (aged[:, None] - aged).clamp(max=0).exp()
    weights = weights * (torch.arange(TOKENS) <= torch.arange(TOKENS)[:, None])[..., None]
    return torch.einsum("tsh,shd->thd", weights, x) + D.double()[:, None] * x


def scanned(one, tokens, state, cache, block, chunk=16, sequences=(0, 0)):
    """A chunk of a prompt, in two chunks of the kernel, whose last state goes to `block`."""
    rows = {name: values[tokens] for name, values in one.items()}
    out, middle = torch.full_like(rows["x"], float("nan")), min(chunk, len(rows["x"]) - 1)
    mamba2.mamba_chunk_scan_combined_varlen(
        rows["x"], rows["dt"], A, rows["B"], rows["C"], chunk, D=D, dt_bias=BIAS, dt_softplus=True, out=out,
        cu_seqlens=torch.tensor([0, len(out)]), cu_chunk_seqlens=torch.tensor([0, middle, len(out)]),
        last_chunk_indices=torch.tensor([1]), seq_idx=torch.tensor(sequences),
        initial_states=None if state is None else state[None], final_states_out=cache,
        final_state_indices=torch.tensor([block]),
    )  # fmt: skip
    return out


def stepped(one, tokens, cache, read, written, **more):
    rows = {name: values[tokens] for name, values in one.items()}
    out = torch.full_like(rows["x"], float("nan"))
    wide = (HEADS, SIZE, STATES)
    mamba2.selective_state_update(
        cache, rows["x"], rows["dt"][..., None].expand(-1, -1, SIZE), A[:, None, None].expand(wide), rows["B"], rows["C"],
        D[:, None].expand(-1, SIZE), dt_bias=BIAS[:, None].expand(-1, SIZE), dt_softplus=True, out=out,
        state_batch_indices=torch.tensor(read), dst_state_batch_indices=torch.tensor(written), **more,
    )  # fmt: skip
    return out


def cache():
    return torch.full((9, HEADS, SIZE, STATES), 40.0)


def test_a_prompt_in_chunks_and_a_decode_are_the_sum_over_all_tokens():
    one, held = request(1), cache()
    outs = [scanned(one, slice(0, 17), None, held, 3), scanned(one, slice(17, 40), held[3], held, 5)]
    for token in range(40, TOKENS):
        outs.append(stepped(one, slice(token, token + 1), held, [[5]], [[5]]))
    torch.testing.assert_close(torch.cat(outs).double(), true(one), rtol=1e-4, atol=1e-4)
    assert (held[[1, 2, 4, 6, 7, 8]] == 40).all()


def test_a_verification_goes_on_behind_what_was_accepted():
    one, held = request(2), cache()
    scanned(one, slice(0, 30), None, held, 1)
    more = {"cu_seqlens": torch.tensor([0, 3])}
    first = stepped(one, slice(30, 33), held, [[1, 2, 3]], [[1, 2, 3]], num_accepted_tokens=torch.tensor([1]), **more)
    again = stepped(one, slice(32, 35), held, [[1, 2, 3]], [[1, 2, 3]], num_accepted_tokens=torch.tensor([2]), **more)
    torch.testing.assert_close(torch.cat([first[:2], again]).double(), true(one)[30:35], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", ["another request's", "one token older", "none"])
def test_another_state_is_seen_in_the_rows_behind_it(wrong):
    one, other, held = request(3), request(4), cache()
    if wrong == "another request's":
        scanned(other, slice(0, 20), None, held, 3)
    elif wrong == "one token older":
        scanned(one, slice(0, 19), None, held, 3)
    out = scanned(one, slice(20, 40), None if wrong == "none" else held[3], held, 5)
    errors = (out.double() - true(one)[20:40]).norm(dim=-1) / true(one)[20:40].norm(dim=-1)
    assert errors.amax(1)[:3].min() > 0.05


def test_a_chunk_that_is_said_to_be_another_sequences_begins_anew():
    one, held = request(5), cache()
    out = scanned(one, slice(0, 30), None, held, 3, sequences=(0, 1))
    assert not torch.allclose(out[16:].double(), true(one)[16:30], rtol=1e-3, atol=1e-3)


def test_a_convolution_in_pieces_is_that_of_the_whole():
    draw = torch.Generator().manual_seed(6)
    x, weight, bias = (torch.randn(shape, generator=draw) for shape in ((20, 5), (5, WIDTH), (5,)))
    whole = mamba2_reference.convolved(torch.zeros(WIDTH - 1, 5), x, weight, bias, "silu")
    states = torch.full((4, 5, WIDTH - 1 + 2), 40.0)  # two places more, for drafts
    outs = []
    for begin, end in ((0, 11), (11, 13)):
        chunks = -(-(end - begin) // 8)
        grid = {
            "tot": chunks,
            "batch_ptr": torch.zeros(chunks, dtype=torch.int32),
            "token_chunk_offset_ptr": torch.arange(chunks),
        }
        outs.append(
            mamba2.causal_conv1d_fn(
                x[begin:end].t(), weight, bias, states, torch.tensor([0, end - begin]), torch.tensor([2]),
                torch.tensor([begin > 0]), metadata=SimpleNamespace(nums_dict={8: grid}),
            ).t()
        )  # fmt: skip
    drafts = {"num_accepted_tokens": torch.tensor([1]), "query_start_loc": torch.tensor([0, 3]), "max_query_len": 3}
    table = torch.tensor([[2, 3, 1]])
    outs.append(mamba2.causal_conv1d_update(x[13:16].clone(), states, weight, bias, "silu", table, **drafts)[:2])
    drafts["num_accepted_tokens"] = torch.tensor([2])
    outs.append(mamba2.causal_conv1d_update(x[15:18].clone(), states, weight, bias, "silu", table, **drafts))
    torch.testing.assert_close(torch.cat(outs).double(), whole[:18], rtol=1e-5, atol=1e-5)


def test_the_reference_is_what_a_state_carries_from_token_to_token():
    one = request(7)
    step = torch.nn.functional.softplus(one["dt"].double() + BIAS.double())
    state, outs = torch.zeros(HEADS, SIZE, STATES, dtype=torch.float64), []
    for x, b, c, dt in zip(one["x"].double(), one["B"].double(), one["C"].double(), step):
        state = state * (dt * A).exp()[:, None, None] + (dt[:, None] * x)[..., None] * b
        outs.append(state @ c[0] + D[:, None] * x)
    about = {"a": A, "d": D, "dt_bias": BIAS, "start": 30}
    found = mamba2_reference.outputs(one["x"], one["B"][:, 0], one["C"][:, 0], one["dt"], **about)
    torch.testing.assert_close(found, torch.stack(outs)[30:].double(), rtol=1e-6, atol=1e-6)


def test_parts_are_as_large_as_the_result_unless_they_cancel_each_other():
    one = request(8)
    given = one["x"].abs().double(), one["B"][:, 0].abs().double(), one["C"][:, 0].abs().double(), one["dt"]
    about = {"a": A, "d": D, "dt_bias": BIAS, "start": 0}
    parts, out = mamba2_reference.output_parts(*given, **about), mamba2_reference.outputs(*given, **about).norm(dim=-1)
    assert (parts <= out).all()  # all of one sign: nothing cancels
