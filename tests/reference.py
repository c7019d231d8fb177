"""Writes the tables of fairseq_xl/README.md, "Reference", from the code: ``python -m tests.reference``."""

import inspect
import re
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

import fairseq_xl
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.objectives.base import Objective

PAGE = Path(__file__).parent.parent / "fairseq_xl/README.md"
HEADING = "\n## Reference\n"

fairseq_xl.register()


def reference():
    """The text of the section, from its heading on."""
    return f"""{HEADING}
This section is generated: `python -m tests.reference` writes it from the code.

### Objectives

Names for `--objectives`, several joined by commas.

{objectives()}

### Settings of objectives

For `--objective-options 'OBJECTIVE.OPTION=VALUE …'`. The error for a wrong name suggests the nearest one. Given after
the YAML files of a recipe, it changes the settings that it names and keeps the others. `null` removes a limit:
`mlm.batch_sentences=null`.

{settings()}

### Architectures

Names for `--arch`. Every size is an option too. A model has the form, channels and heads of the weights that it starts
from. Output layers: `plain` is that of XLM, `dense` that of XLM-R and BERT; `languages`: with language embeddings.

{architectures()}

### Options of tasks, criterions and the optimizer

All options of `fairseq-train` apply too.

{options()}

### Options of models

{model_options()}
"""


def table(*rows):
    """Rows of cells as a table; the first row is its head."""
    lines = ["".join(f"| {escaped(str(cell))} " if cell != "" else "| " for cell in row) + "|" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def escaped(text):
    """Text in which | ends no cell and <s> is no HTML; code between backticks stays."""
    parts = text.replace("``", "`").replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "\\<") for number, part in enumerate(parts))


def ours(registry):
    """{name: config} of what this package registered."""
    return {name: config for name, config in registry.items() if name.startswith("xl_")}


def code(text):
    return f"`{text}`"


def objectives():
    rows = [
        (
            code(name),
            code(kind.corpus_class.__name__),
            inspect.cleandoc(kind.__doc__).splitlines()[0],
            kind.model_class.description,
        )
        for name, kind in listed().items()
    ]
    return table(("objective", "reads", "what it does", "needs"), *rows)


def listed():
    """The objectives of this package; tests may have registered others."""
    return {name: kind for name, kind in sorted(OBJECTIVES.items()) if kind.__module__.startswith("fairseq_xl.")}


def explained(config, name):
    """The comment beside a setting of an objective in the source, or above it."""
    owner = next(kind for kind in config.__mro__ if name in inspect.get_annotations(kind))
    if told := owner.__dataclass_fields__[name].metadata.get("help"):
        return told
    lines = [line.strip() for line in inspect.getsource(owner).splitlines()]
    number = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
    if "  # " in lines[number]:
        return lines[number].split("  # ")[1]
    above = []
    while lines[number - 1].startswith("# "):
        number -= 1
        above.insert(0, lines[number][2:])
    return " ".join(above)


def settings():
    """A row for each setting, default and meaning."""
    rows, names = defaultdict(list), {field.name: None for field in fields(Objective.Config)}
    for objective, kind in listed().items():
        for field in (each for each in fields(kind.Config) if not each.name.startswith("_")):
            rows[field.name, shown(field.default), explained(kind.Config, field.name)].append(objective)
            names[field.name] = None
    return table(
        ("setting", "objectives", "default", "meaning"),
        *(
            (code(name), "all" if len(having) == len(listed()) else ", ".join(map(code, having)), default, meaning)
            for wanted in names
            for (name, default, meaning), having in rows.items()
            if name == wanted
        ),
    )


def architectures():
    rows = []
    for name, config in ours(MODEL_DATACLASS_REGISTRY).items():
        default = {field.name: field.default for field in fields(config)}
        layers = default.get("layers") or f"{default['encoder_layers']} + {default['decoder_layers']}"
        languages = "languages" if default.get("language_embeddings") == "added" else ""
        form = ", ".join(filter(None, (default.get("output_form"), languages)))
        rows.append((code(name), layers, *(default.get(key, "") for key in ("embed_dim", "ffn_dim", "heads")), form))
    return table(("`--arch`", "layers", "channels", "feed-forward", "heads", "form"), *sorted(rows))


def shown(default):
    """A default as on the command line; nothing for none, and for one that is another option's."""
    return "" if default is None or "${" in str(default) else code(default)


def flag(field):
    """The option of a field; the data folder is given without one."""
    if field.name == "data":
        return code("DATA")
    short = field.metadata.get("argparse_alias")
    return code("--" + field.name.replace("_", "-")) + (f", {code(short)}" if short else "")


def options():
    kinds = {
        **ours(TASK_DATACLASS_REGISTRY),
        **{f"{name} (criterion)": config for name, config in ours(CRITERION_DATACLASS_REGISTRY).items()},
        **ours(REGISTRIES["optimizer"]["dataclass_registry"]),
    }
    rows = defaultdict(list)
    for name, config in kinds.items():
        for field in fields(config):
            if field.metadata.get("help"):
                rows[flag(field), shown(field.default), field.metadata["help"]].append(name)
    tasks = ours(TASK_DATACLASS_REGISTRY)
    cells = [
        (option, "all tasks" if set(tasks) <= set(names) else ", ".join(map(code, names)), default, text)
        for (option, default, text), names in in_order(rows)
    ]
    return table(("option", "of", "default", "meaning"), *cells)


def model_options():
    """A row for each option and meaning; defaults are those of the architectures."""
    rows = defaultdict(set)
    for name, config in ours(MODEL_DATACLASS_REGISTRY).items():
        for field in fields(config):
            if field.metadata.get("help"):
                rows[flag(field), field.metadata["help"]].add(re.match(r"xl_[a-z]+", name)[0])
    families = set().union(*rows.values())
    cells = [(option, architectures_of(names, families), text) for (option, text), names in in_order(rows)]
    return table(("option", "architectures", "meaning"), *cells)


def architectures_of(names, families):
    """Families of architectures in words: few by name, nearly all by what is missing."""
    if len(families - names) > 1:
        return ", ".join(f"`{name}*`" for name in sorted(names))
    return "all" + "".join(f" but `{name}*`" for name in families - names)


def in_order(rows):
    """Items of a dict whose keys begin with options, in their order: --lang before --lang-pairs."""
    return sorted(rows.items(), key=lambda item: (item[0][0].replace("`", ""), item[1]))


def main():
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page[: page.index(HEADING)] + reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
