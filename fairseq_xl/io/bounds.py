"""Bounds of the memory and work that a file or a number on a command line may ask for. Imports nothing.

Readers look a bound up when they read (`bounds.LONGEST_LINE`), so that a test or a program can change it.
"""

# numbers on a command line, in a configuration or a checkpoint are below
LARGEST = 2**31  # of all of them
LARGEST_BEAM = 10_000  # hypotheses, candidates or neighbors of a line
MOST_RESAMPLES = 100_000  # of a bootstrap
MOST_PROCESSES = 4096
MOST_SHARDS = 100_000
MOST_DOCUMENTS = 1_000_000  # of the sample corpus
MOST_CHANNELS, MOST_BUCKETS = 1 << 16, 1 << 27  # of skip-gram embeddings
LARGEST_VOCABULARY = 2_000_000  # pieces or lines: twice as many as the largest published one has (XLM-V)

LONGEST_LINE = 8 << 20  # bytes; a longer line is not a sentence, and sub-words take up to 60 times as many bytes
MOST_LINES = 1 << 24  # lines of a file whose lines are in memory at the same time, such as task files and references

# Compressed text of n bytes has at most GROWTH * n bytes, once FREE_GROWTH is used up: natural text is 3 to 20 times as
# large as its compressed form, gzip reaches 230 to 1,032 times and xz 7,000 times for a repeated byte.
GROWTH = 100
FREE_GROWTH = 16 << 20  # bytes
XZ_MEMORY = 256 << 20  # bytes that a decompressor of xz may take; `xz -9` needs 65 MiB

LARGEST_STRUCTURE = 16 << 20  # bytes of a checkpoint beside the values of its tensors; a tensor takes about 200
MOST_INSTRUCTIONS = 1_600_000  # of the pickle in a checkpoint: 30 for a tensor, 7 for each of XLM's 200,000 words
DEEPEST = 50  # levels of data in a checkpoint; fairseq's have 6
LARGEST_SETTINGS = 1 << 20  # bytes of a YAML file
MOST_SETTINGS = 100_000  # values of a YAML file; an alias (*name) counts as all values of its anchor
LARGEST_FILE = 1 << 27  # bytes of a file that is read in one piece, such as a vocabulary or JSON
MOST_VALUES = 1 << 23  # values of a JSON file: numbers, strings, lists, objects
