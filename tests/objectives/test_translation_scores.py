"""Counts and scores of translations by direction."""

import torch
from tiny_data import write_data_bin

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.objectives.translation_scores import TranslationScorer


def test_translations_are_counted_by_direction_and_scored(tmp_path):
    """Two pieces become three, in the direction of the batch; BLEU is that of what is compared: 2 of 3 pieces right."""
    data = write_data_bin(tmp_path / "data-bin")
    dictionary = XLDictionary.load(data / "dict.txt")
    scorer = TranslationScorer(dictionary, data, ["en-de", "de-en"])
    codes = {"languages": "en", "other_languages": "de"}
    batch = {name: torch.tensor([[dictionary.language_id(code)]]) for name, code in codes.items()}
    batch |= {"tokens": torch.tensor([[0, 4, 5, 2]]), "target": torch.tensor([[4, 5, 2]])}
    term = scorer.counted(batch, torch.tensor([[4, 5, 6, 2]]))
    counts = dict(zip(scorer.keys, term.sum.tolist(), strict=True))
    assert counts["pieces", "en-de"] == 3 and counts["source_pieces", "en-de"] == 2 and not counts["pieces", "de-en"]
    sums = {}
    for (field, direction), number in counts.items():
        sums.setdefault(field, {})[direction] = (number, 0.0)
    scores = scorer.values({"back_translation": sums})
    assert scores["length_ratio_en-de"] == 1.5 and scores.keys() == {"wrong_language_en-de", "length_ratio_en-de"}
    compared = scorer.counted(batch, batch["target"], batch["target"])
    numbers = dict(zip(scorer.keys, compared.sum.tolist(), strict=True))
    assert numbers["reference_length", "en-de"] == numbers["hypothesis_length", "en-de"] > 0
