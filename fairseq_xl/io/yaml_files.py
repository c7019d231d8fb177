"""Loads YAML files: recipes, experiments, corpus descriptions, lists and settings.

true, false and null are as in YAML. A number is what Python writes in the same way (``10``, ``0.5``). Everything else
is text: the language ``no``, ``1e3``, ``007``, a date. So `str` of a value other than true, false and null is its text
in the file. Keys are text.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds

CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e[+-][0-9]{1,3})?")
TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")


def load(path: str | Path, only_text: bool = False) -> Any:
    """The content of a file; with `only_text` all values are text. Raises `UserError` that names file and line."""
    return parse(_read(path), path, only_text)


def key_lines(path: str | Path) -> dict[str, int]:
    """{key: number of its line, from 1} of the mapping that a file contains; `load` says what is wrong with a file."""
    node: Any = _Loader(_read(path), only_text=True).get_single_node()
    return {key.value: key.start_mark.line + 1 for key, _ in node.value}


def _read(path: str | Path) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(bounds.LARGEST_SETTINGS + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        if len(content) <= bounds.LARGEST_SETTINGS:
            raise UserError(f"{path} is not UTF-8: it has the byte 0x{error.object[error.start]:02x}") from error
    if len(content) > bounds.LARGEST_SETTINGS:
        raise UserError(f"{path}: expected a YAML file of at most {bounds.LARGEST_SETTINGS} bytes, found a larger one")
    return text


def parse(text: str, where: str | Path, only_text: bool = False) -> Any:
    """The content of YAML text, which `where` names in errors; as `load`."""
    try:
        loader = _Loader(text, only_text)
        return loader.get_single_data()
    except RecursionError as error:
        raise UserError(f"{where} is not YAML: its values are nested too deeply") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
        raise UserError(f"{where} is not YAML{line}: {problem}") from error


class _Loader(yaml.BaseLoader):
    """PyYAML's loader of text, which makes no Python objects, with the rules of this module."""

    flatten_mapping = yaml.SafeLoader.flatten_mapping

    def __init__(self, text: str, only_text: bool) -> None:
        super().__init__(text)
        self.only_text = only_text
        self.count = 0
        self.sizes: dict[int, int] = {}  # id of a node -> number of values in it, aliases expanded

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Composes a node; raises an error for a tag, and for more than `bounds.MOST_SETTINGS` values."""
        event = self.peek_event()
        if getattr(event, "tag", None) not in TEXT_TAGS:
            raise _error(f"a tag is not supported, found {quoted(event.tag)}", event)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode) and getattr(event, "tag", None):
            node.style = "'"  # !!str no: as if it were quoted
        self.count += 1
        if id(node) not in self.sizes:
            if isinstance(node, yaml.MappingNode):
                _check_keys(node)
            inner = [] if isinstance(node, yaml.ScalarNode) else node.value
            inner = itertools.chain(*inner) if isinstance(node, yaml.MappingNode) else inner
            self.sizes[id(node)] = 1 + sum(self.sizes[id(value)] for value in inner)
        if max(self.count, self.sizes[id(node)]) > bounds.MOST_SETTINGS:
            raise _error(f"it holds more than {bounds.MOST_SETTINGS} values, aliases expanded", node)
        return node

    def construct_scalar(self, node: Any) -> Any:
        """The value of a node; raises an error for text that is not Unicode."""
        text = str(node.value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise _error(f"{quoted(text)} is not text", node)
        if self.only_text or node.style is not None:
            return text
        if text in CONSTANTS:
            return CONSTANTS[text]
        if NUMBER.fullmatch(text):
            value = float(text) if {".", "e"} & {*text} else int(text)
            return value if str(value) == text else text
        return text

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        """The content of a mapping, with that of the mappings that its key ``<<`` names."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}


def _check_keys(node: yaml.MappingNode) -> None:
    """Raises an error for a key that is repeated or no scalar; marks the key ``<<``."""
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _error("a key must be one value", key)
        if key.value in seen:
            raise _error(f"{quoted(key.value)} is named twice in one mapping", key)
        seen.add(key.value)
        if key.value == "<<" and key.style is None:
            key.tag = "tag:yaml.org,2002:merge"


def _error(problem: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
