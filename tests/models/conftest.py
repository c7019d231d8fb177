"""A vocabulary of 16 pieces and two languages for tests of models."""

import pytest

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary


@pytest.fixture
def dictionary(tmp_path):
    pieces = [f"p{i} {16 - i}" for i in range(16)]
    path = tmp_path / "dict.txt"
    path.write_text("\n".join([*pieces, "<mask> 0", "[de] 0", "[en] 0"]) + "\n")
    return XLDictionary.load(path)
