"""The archives of the shared task's training data, and the members that the reader uses."""

from dataclasses import dataclass

PAIRS = ("en-de", "en-fr")
# sacrebleu's names of newstest2012, newstest2013 and the whole newstest2014.
# French is validated on the first two, as in VECO (Luo et al. 2020).
VALIDATION, TEST = {"en-de": ["wmt13"], "en-fr": ["wmt12", "wmt13"]}, "wmt14/full"


@dataclass(frozen=True)
class Archive:
    """A tar.gz; `member` is a text file in it, {0} the pair in the archive's order (de-en)."""

    url: str
    size: int  # bytes
    sha256: str
    member: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[1]

    def members(self, pair: str) -> dict[str, str]:
        """The member of each language of a pair such as en-de."""
        source, target = pair.split("-")
        return {language: f"{self.member.format(f'{target}-{source}')}.{language}" for language in (source, target)}


ARCHIVES = (
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
