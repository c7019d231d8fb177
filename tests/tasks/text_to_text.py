"""Checks that the tests of xDAE and xFNP share."""

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.objectives.sequence import decoder_input, decoder_target, sequence_terms


def check_all_trained(before, after):
    """Every parameter of the state dict `after` differs from that of `before`."""
    assert before.keys() == after.keys()
    assert [name for name in before if torch.equal(before[name], after[name])] == []


def check_beam_search(data_bin, checkpoint):
    """fairseq's beam search, which starts with the language's symbol and has caches, scores as teacher forcing does."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    dictionary, pad = task.dictionary, task.dictionary.pad()
    texts, start = open_text(data_bin / "fr/valid", "fr"), dictionary.language_symbol("fr")
    tokens = torch.from_numpy(pad_rows([task.framing.sentence(texts[n]) for n in range(4)], pad))
    languages = torch.full((4,), dictionary.language_id("fr"))
    net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(pad).sum(1), "src_languages": languages}
    options = dict(beam_size=3, min_len=4, max_len_b=10, normalize_scores=False)
    generator = SequenceGenerator([model.eval()], dictionary, **options)
    beams = generator.generate([model], {"net_input": net_input}, bos_token=start)
    target = torch.from_numpy(pad_rows([beam[0]["tokens"].numpy() for beam in beams], pad))
    batch = {
        "tokens": tokens,
        "padding_mask": tokens.eq(pad),
        "languages": languages[:, None],
        "prev_output_tokens": decoder_input(target, torch.full((4, 1), start)),
        **decoder_target(target, pad),
    }
    with torch.no_grad():
        first, *_ = sequence_terms(model, batch)
    assert first.count == target.ne(pad).sum() >= 4 * 5
    assert -sum(beam[0]["score"].item() for beam in beams) == pytest.approx(first.sum.item(), abs=1e-3)
