"""Writes a page of results: one HTML file with the tables and bar charts of score files, which needs no other file.

    fairseq-xl plot results published=xlmr.json ours=model.json --output page.html

SCORES is a file that `fairseq-xl score xglue` or `fairseq-xl score xtreme` printed. Several systems are shown side by
side.
"""

import logging

from fairseq_xl.commands import Options, argument, command, several
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.results_page import page, read_settings
from fairseq_xl.evaluation.score_files import read_score_files
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)


@command(
    argument("scores", "score file, and the name of its system", nargs="+", metavar="[NAME=]SCORES"),
    argument("--output", "HTML file to write", required=True),
    argument("--title", "heading of the page", default="Results"),
    argument("--note", "text below the heading, such as what the data are", default=""),
    several(
        "--settings",
        "settings to show: a YAML or JSON file, such as the configuration of a training; of the step.json of an "
        "experiment's step, its commands; may be repeated",
        "FILE",
        "append",
    ),
)
def main(options: Options) -> None:
    if any(options.settings.count(path) > 1 for path in options.settings):
        raise UserError(f"--settings {' --settings '.join(options.settings)}: a file is named twice")
    files = read_score_files(options.scores)
    settings = {path: read_settings(path) for path in options.settings}
    html = page(files, settings, options.title, options.note)
    with replacing(options.output) as file:
        file.write(html.encode("utf-8", "replace"))  # JSON may have half of a surrogate pair
    logger.info("%s: systems %s", options.output, ", ".join(dict.fromkeys(file.system for file in files)))
