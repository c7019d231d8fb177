"""XLM's published translation model, with random weights: the file, and what its code translates."""

import torch
from torch import nn

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from tests.commands import MAX_POSITIONS
from tests.tasks.xlm_reference import Transformer, translate

SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]
EOS = SPECIAL.index("</s>")
LANGUAGES = ["de", "xx", "en"]  # of the file; ours are en, de, fr
EN, DE = LANGUAGES.index("en"), LANGUAGES.index("de")
LAYERS, HEADS, LONGEST = 2, 2, 12


class Model:
    """The file of a translation model, and its two stacks."""

    def __init__(self, data_bin, path, gelu=True, languages=LANGUAGES):
        self.dictionary, self.path = XLDictionary.load(data_bin / "dict.txt"), path
        symbols = self.dictionary.symbols[: self.dictionary.first_language]
        self.words = [*SPECIAL, *symbols[4:-1]]
        numbers = {language: number for number, language in enumerate(languages)}
        self.params = dict(emb_dim=16, n_layers=LAYERS, n_heads=HEADS, n_langs=len(languages), gelu_activation=gelu)
        self.params |= dict(positions=MAX_POSITIONS, share_inout_emb=True, mt_steps=[("en", "de")])
        self.params |= dict(id2lang=dict(enumerate(languages)), lang2id=numbers)
        place = {word: row for row, word in enumerate(self.words)} | {"<mask>": SPECIAL.index("<special1>")}
        self.rows = [place[symbol] for symbol in symbols]  # theirs of each of our ids
        self.encoder, self.decoder = (Transformer(self.params, len(self.words), first) for first in (True, False))
        torch.manual_seed(4)
        for name, parameter in (*self.encoder.named_parameters(), *self.decoder.named_parameters()):
            nn.init.normal_(parameter, float("norm" in name and name.endswith("weight")), 0.3)
        with torch.no_grad():  # as after training: of the symbols, </s> alone is predicted
            self.decoder.pred_layer.proj.bias[: len(SPECIAL)] = -100.0
            self.decoder.pred_layer.proj.bias[EOS] = 3.0
        self.write(path)

    def write(self, path, **changes):
        """Writes a file; None leaves a key out."""
        words = dict(enumerate(self.words))
        content = {
            "epoch": 7,
            "best_metrics": {"valid_en-de_mt_bleu": 26.4},
            "params": self.params,
            "encoder": self.encoder.state_dict(),
            "decoder": self.decoder.state_dict(),
            "dico_id2word": words,
            "dico_word2id": {word: row for row, word in words.items()},
            "dico_counts": {word: 3 * row for row, word in words.items()},
        }
        torch.save({key: value for key, value in (content | changes).items() if value is not None}, path)

    @torch.no_grad()
    def translation(self, source, longest=LONGEST):
        """Our ids of a sentence without </s> -> their greedy translation: symbols and log-probabilities."""
        source = [self.rows[token] for token in source]
        found, scores = translate(self.encoder, self.decoder, source, (EN, DE), EOS, longest)
        return [self.words[row] for row in found], scores
