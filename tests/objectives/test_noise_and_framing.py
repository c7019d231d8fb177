"""What objectives with noise have in common: noise by key, and the framing of published weights."""

import pytest

PAD = 1


@pytest.mark.parametrize(
    "name, options, corpus, examples",
    [
        ("mlm", "mlm.mask_prob=0.5 mlm.length=9", "stream", [10, 0, 5, 0]),
        ("tlm", "tlm.mask_prob=0.5", "pairs", [1, 0, 1, 0]),
        ("xdae", "xdae.length=8", "stream", [10, 0, 5, 0]),
        ("xfnp", "xfnp.span_every=4 xfnp.span_pieces=2 xfnp.length=8", "stream", [10, 0, 5, 0]),
    ],
)
def test_noise_depends_on_the_key_only(build, spec, request, name, options, corpus, examples):
    """Another key, as in another epoch, gives other noise; the same key gives the same noise in any batch."""
    objective, corpus, keys = build(name, options), request.getfixturevalue(corpus), [7, 8, 9, 10]
    whole = objective.collate(spec(examples, keys), corpus)
    for row, (example, key) in enumerate(zip(examples, keys)):
        alone = objective.collate(spec([example], [key]), corpus)
        for field in ("tokens", *(("target", "prev_output_tokens") if name == "xfnp" else ())):
            size = alone[field].size(1)
            assert whole[field][row, :size].tolist() == alone[field][0].tolist()
            assert field == "prev_output_tokens" or whole[field][row, size:].eq(PAD).all()
    several = objective.collate(spec([0] * 20), corpus)
    assert len({tuple(row) for row in several["target" if name == "xfnp" else "tokens"].tolist()}) > 3


@pytest.mark.parametrize(
    "options, corpus, example, tokens, more",
    [
        ("clm.length=3", "stream", 5, [2, 8], {"target": [8, 9]}),
        ("tlm.mask_prob=0", "pairs", 1, [2, 7, 2, 2, 15, 16, 2], {}),
        ("xdae.length=5 xdae.infill_prob=0", "stream", 0, [2, 4, 5, 6, 2], {"prev_output_tokens": [22, 4, 5, 6]}),
        ("xfnp.length=4", "stream", 0, None, {}),
    ],
)
def test_framing_of_published_weights(build, spec, request, options, corpus, example, tokens, more):
    """</s> in place of <s>; without noise, all of it."""
    objective, corpus = build(options.partition(".")[0], options, "xlm"), request.getfixturevalue(corpus)
    batch = objective.collate(spec([example], [6]), corpus)
    assert batch["tokens"][0, 0] == 2 and (tokens is None or batch["tokens"].tolist() == [tokens])
    assert {field: batch[field].flatten().tolist() for field in more} == more
    assert tokens or batch["prev_output_tokens"][0, 0] == 22
