"""Steps of `recipes/interchange/chain.yaml`: an XLM-R folder with random weights, a description, and the comparison.

    python -m recipes.interchange.steps make FOLDER --sentencepiece MODEL
    python -m recipes.interchange.steps description SAMPLE MODEL
    python -m recipes.interchange.steps monolingual CORPUS unigram|bpe PIECES XX ...
    python -m recipes.interchange.steps compare CHECKPOINT DATA FOLDER PREFIX SOURCE TARGET

B batch, S source time, T target time, V vocabulary.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch

import fairseq_xl
from fairseq_xl.io.folders import new_folder
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank

BATCH = 32  # sentences
CHANNELS, LAYERS, HEADS, POSITIONS = 128, 3, 4, 512


def make(output: Path, model: Path) -> None:
    """Writes an XLM-R folder of transformers, 3 x 128, with random weights in shards."""
    from sentencepiece import SentencePieceProcessor
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

    pieces = SentencePieceProcessor(model_file=str(model)).get_piece_size()
    torch.manual_seed(1)
    config = XLMRobertaConfig(
        vocab_size=pieces + 2,  # the model has <unk> <s> </s>, XLM-R <pad> and <mask> too
        hidden_size=CHANNELS,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * CHANNELS,
        max_position_embeddings=POSITIONS + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        initializer_range=0.06,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    with new_folder(output) as folder:
        XLMRobertaForMaskedLM(config).save_pretrained(folder, max_shard_size="1MB")
        shutil.copyfile(model, folder / "sentencepiece.bpe.model")


def description(sample: Path, model: Path) -> str:
    """Returns the description of the sample's English and German with the pieces of an existing model."""
    root = sample.resolve()
    sides = {code: {split: f"{root}/mono/{split}.{code}" for split in ("train", "valid")} for code in ("en", "de")}
    pair = {split: f"{root}/bitext/{split}.en-de" for split in ("train", "valid", "test")}
    vocabulary = {"sentencepiece": str(model.resolve())}
    content = {"languages": ["en", "de"], "vocabulary": vocabulary, "monolingual": sides, "bitext": {"en-de": pair}}
    return json.dumps(content, indent=1)  # JSON is YAML


def monolingual(corpus: Path, model: str, size: int, languages: list[str]) -> str:
    """Returns the description of monolingual text, CORPUS/mono/{train,valid}.XX, on which sub-words are learned."""
    root = corpus.resolve()
    sides = {code: {split: f"{root}/mono/{split}.{code}" for split in ("train", "valid")} for code in languages}
    content = {"languages": languages, "vocabulary": {"model": model, "size": size}, "monolingual": sides}
    return json.dumps(content, indent=1)


@torch.no_grad()
def compare(checkpoint: str, data: str, folder: str, prefix: str, source: str, target: str) -> dict[str, str | int]:
    """Compares token ids and logits of a translation model here and in transformers, on aligned text.

    Args:
        checkpoint, data: the model and its data folder.
        folder: the same model as a folder of transformers.
        prefix: prefix of the files of text, PREFIX.SOURCE and PREFIX.TARGET.

    Returns: {"logits": the maximum difference, "ids": "equal" or "different", "sentences": their number}.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from fairseq_xl.data.framing import pad_rows
    from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
    from fairseq_xl.objectives.sequence import decoder_input

    loaded = fairseq_xl.load(checkpoint, data=data)
    dictionary, framing = loaded.task.dictionary, loaded.task.framing
    exported = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer, encode = AutoTokenizer.from_pretrained(folder), TextEncoder(data, dictionary)
    sides = [read_lines(f"{prefix}.{language}") for language in (source, target)]
    texts = list(zip(*(pair for pair in zip(*sides) if not any(map(is_blank, pair)))))  # blank lines end documents
    largest, equal = torch.zeros(()), True
    for begin in range(0, len(texts[0]), BATCH):
        sources, targets = (list(side[begin : begin + BATCH]) for side in texts)
        rows = [framing.sentence(encode(text, source), dictionary.language_id(source)) for text in sources]
        tokens = torch.from_numpy(pad_rows(rows, dictionary.pad()))  # (B, S)
        batch = tokenizer(sources, return_tensors="pt", padding=True)
        equal &= torch.equal(batch["input_ids"], tokens)
        ended = torch.from_numpy(pad_rows([encode(text, target) for text in targets], dictionary.pad()))  # (B, T)
        starts = torch.full((len(ended), 1), dictionary.language_symbol(target))
        inputs = decoder_input(ended, starts)
        expected, _ = loaded.model(src_tokens=tokens, src_lengths=None, prev_output_tokens=inputs)
        logits = exported(**batch, decoder_input_ids=inputs).logits  # (B, T, V)
        real = ended.ne(dictionary.pad())
        largest = torch.maximum(largest, (logits - expected)[real].abs().max())  # NaN stays
    return {"logits": f"{float(largest):.1e}", "ids": "equal" if equal else "different", "sentences": len(texts[0])}


def main() -> None:
    """Runs a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    make_parser = steps.add_parser("make")
    make_parser.add_argument("folder", type=Path)
    make_parser.add_argument("--sentencepiece", type=Path, required=True)
    description_parser = steps.add_parser("description")
    description_parser.add_argument("sample", type=Path)
    description_parser.add_argument("model", type=Path)
    monolingual_parser = steps.add_parser("monolingual")
    monolingual_parser.add_argument("corpus", type=Path)
    monolingual_parser.add_argument("model", choices=("unigram", "bpe"))
    monolingual_parser.add_argument("size", type=int)
    monolingual_parser.add_argument("languages", nargs="+")
    compare_parser = steps.add_parser("compare")
    for name in ("checkpoint", "data", "folder", "prefix", "source", "target"):
        compare_parser.add_argument(name)
    options = vars(parser.parse_args())
    step = options.pop("step")
    if step == "make":
        make(options["folder"], options["sentencepiece"])
    elif step in ("description", "monolingual"):
        sys.stdout.write((description if step == "description" else monolingual)(**options) + "\n")
    else:
        sys.stdout.write(json.dumps(compare(**options)) + "\n")


if __name__ == "__main__":
    main()
