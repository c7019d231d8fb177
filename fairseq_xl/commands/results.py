"""Writes a page of results: one HTML file with the tables and bar charts of score files, which needs no other file.

SCORES is a file that `fairseq-xl score xglue` or `fairseq-xl score xtreme` printed. Several systems are shown side by
side.
"""

import argparse
import logging

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.results_page import page, read_settings
from fairseq_xl.evaluation.score_files import read_score_files
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl results", description=__doc__)
    parser.add_argument("scores", nargs="+", metavar="[NAME=]SCORES", help="score file, and the name of its system")
    parser.add_argument("--output", required=True, help="HTML file to write")
    parser.add_argument("--title", default="Results", help="heading of the page (default: %(default)s)")
    parser.add_argument("--note", default="", help="text below the heading, such as what the data are")
    parser.add_argument(
        "--settings",
        action="append",
        default=[],
        metavar="FILE",
        help="settings to show: a YAML or JSON file, such as the configuration of a training; of the step.json of an "
        "experiment's step, its commands; may be repeated",
    )
    options = parser.parse_args(arguments)
    if any(options.settings.count(path) > 1 for path in options.settings):
        raise UserError(f"--settings {' --settings '.join(options.settings)}: a file is named twice")
    files = read_score_files(options.scores)
    settings = {path: read_settings(path) for path in options.settings}
    html = page(files, settings, options.title, options.note)
    with replacing(options.output) as file:
        file.write(html.encode("utf-8", "replace"))  # JSON may have half of a surrogate pair
    logger.info("%s: systems %s", options.output, ", ".join(dict.fromkeys(file.system for file in files)))
