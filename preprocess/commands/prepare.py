"""Makes a data folder from raw text: sub-words, dictionary and binarized text.

    fairseq-xl data prepare corpora/my.yaml data-bin/my --jobs 16

An interrupted run is resumed. --check-only reads everything and lists what is wrong.
"""

from preprocess.commands import parser_of, run
from preprocess.pipeline import prepare


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("data_bin", nargs="?", metavar="DATA", help="folder to write; an interrupted run is resumed")
    parser.add_argument("--check-only", action="store_true", help="report on the input and stop")
    options = parser.parse_args(words)
    if options.data_bin is None and not options.check_only:
        parser.error("DATA is missing")
    arguments = options.config, options.data_bin, options.jobs, options.spm_model, options.dict, options.check_only
    return run(lambda: prepare(*arguments), options.data_bin)
