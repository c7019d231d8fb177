"""Blocks of whole sentences of a document as a corpus: fairseq's ``--sample-break-mode complete_doc``."""

import numpy as np

from fairseq_xl.data.corpora.sentence_blocks import SentenceBlocks


@SentenceBlocks.register
class DocumentBlocks(SentenceBlocks):
    """Blocks of as many consecutive sentences of one document as fit into `length` tokens; longer ones are split."""

    break_mode = "complete_doc"

    def rows_of(self, length):
        """Yields token indices where blocks begin and end, (n, 2). A document ends at an empty line."""
        blocks, begin = [], 0
        for line in range(self.lines):
            start, stop = self.text.bounds(line)
            is_blank = stop - start == 1
            if start > begin and (is_blank or stop - begin > length):
                blocks.append((begin, start))
                begin = start
            while stop - begin > length:
                blocks.append((begin, begin + length))
                begin += length
            begin = stop if is_blank else begin
        last = [(begin, stop)] if stop > begin else []
        yield np.array(blocks + last, dtype=np.int64).reshape(-1, 2)
