"""The training archives, validation sets and test set of each pair."""

from dataclasses import dataclass

from preprocess.readers.wmt.archives import Archive, TranslationMemory


@dataclass(frozen=True)
class Pair:
    """The corpus of a pair."""

    archives: tuple[Archive, ...]
    validation: tuple[str, ...]  # names of sacreBLEU's test sets
    test: str  # name of sacreBLEU's test set


# The sizes and SHA-256 are those in TensorFlow Datasets' lists for WMT14, WMT15 and WMT16.
WMT14 = (
    Archive(
        "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        657632379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        "training/europarl-v7.{0}",
    ),
    Archive(
        "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        918311367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        "commoncrawl.{0}",
    ),
    Archive(
        "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        80418416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        "training/news-commentary-v9.{0}",
    ),
)
WMT14_FRENCH = (
    Archive(
        "https://www.statmt.org/wmt13/training-parallel-un.tgz",
        2365634246,
        "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
        "un/undoc.2000.{0}",
    ),
    Archive(
        "https://www.statmt.org/wmt10/training-giga-fren.tar",
        2595102720,
        "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
        "giga-fren.release2.fixed",
    ),
)
WMT16 = (
    Archive(
        "https://data.statmt.org/wmt16/translation-task/training-parallel-ep-v8.tgz",
        225018324,
        "8917bd3bef3bc894c8519ca1f8a4c7c330aad08a1263655a9d99ee13d532e3c7",
        "training-parallel-ep-v8/europarl-v8.{0}",
    ),
    TranslationMemory(
        "https://object.pouta.csc.fi/OPUS-SETIMES/v2/tmx/en-ro.tmx.gz",
        23458958,
        "56bfaa2a8c8bdfccb7b50cc926067e2291347d807004e81faab8762ddbf26302",
        "setimes-v2.en-ro",
    ),
)
PAIRS = {
    "en-de": Pair(WMT14, ("wmt13",), "wmt14/full"),
    "en-fr": Pair(WMT14 + WMT14_FRENCH, ("wmt12", "wmt13"), "wmt14/full"),  # as in VECO (Luo et al. 2020)
    "en-ro": Pair(WMT16, ("wmt16/dev",), "wmt16"),
}
