"""Reads the paragraphs of a help page: their ids, kinds, texts, marked text and index entries.

Paragraphs embedded from other pages, links to further pages and code are left out. One variant is read of paragraphs
that depend on the system or the application ("switch").
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple, TypeAlias

from lxml import etree, html

from preprocess.readers.text import INVISIBLE, has_letter, one_line

BLOCKS = ("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre")
NESTED = {*BLOCKS, "table", "ul", "ol", "br"}  # inline elements that are a space in the text of a block
CODE_STYLES = {"code", "codeintable", "smathcode"}
CODE_BOXES = {"bascode", "pycode", "sqlcode"}
LINK_BOXES = {"relatedbody", "relatedtopics"}
BOILERPLATE = {"howtogetheader", "youtube_consent", "bug"}
# pages of the help browser itself
INTERFACE = {"shared/help/browserhelp.html", "shared/05/err_html.html"}
# variants of a switch, best first: "default", then that of the page's application,
APPLICATIONS = {
    "swriter": "WRITER",
    "scalc": "CALC",
    "simpress": "IMPRESS",
    "sdraw": "DRAW",
    "schart": "CHART",
    "smath": "MATH",
    "sbasic": "BASIC",
    "sdatabase": "BASE",
}
# then these; never MAC, which is not the system of these packages
VARIANTS = ("UNIX", "WIN", *APPLICATIONS.values())

TEXT, CELL = "text", "cell"  # kinds of paragraphs: running text and cells of tables; headings are h1 to h6

UI, KEY, CODE = "UI", "KEY", "CODE"  # kinds of marked text: names of user interface elements, keys, code and input
UNCLEAR = "?"  # text that is marked for one of several reasons
EMPHASIS = "emph"  # class of names of user interface elements, and on pages about code of arguments and values
MARKS = {"menuitem": UI, "widget": UI, "keycode": KEY, "literal": CODE, "input": CODE, "code": CODE}  # class -> kind
FORMULAS = "smath"  # the application on whose pages commands of formulas are emphasized
PATH_SIGNS = re.compile(r"[\s+>\u2010-\u2015\u2192-]+")  # between parts of a menu path or of a key combination

Element: TypeAlias = etree._Element  # lxml's documented name for annotations


class Mark(NamedTuple):
    """Marked text of a paragraph."""

    start: int  # first character
    end: int  # after the last character
    kind: str  # UI, KEY, CODE or UNCLEAR


class Paragraph(NamedTuple):
    """A paragraph of a page."""

    kind: str  # TEXT, CELL, or a heading's tag
    text: str
    marks: tuple[Mark, ...] = ()  # in order
    entries: tuple[str, ...] = ()  # entries of the index that lead to it


def read_page(content: bytes, name: str) -> dict[str, Paragraph]:
    """Reads the paragraphs of a page, in order and by id, without code, links, embedded paragraphs and bare numbers.

    Args:
        content: the page, HTML in UTF-8.
        name: its path below the language's folder; its first part is the application.

    The id of a paragraph without one is its tag, class and a number; a repeated id gets a number. A paragraph thus has
    the same id in every language. A page without a display area has no paragraphs.
    """
    tree = html.document_fromstring(content, parser=html.HTMLParser(encoding="utf-8"))
    application = APPLICATIONS.get(name.split("/")[0])
    paragraphs = {}
    for area in tree.xpath('//div[@id="DisplayArea"]'):
        emphasis = UNCLEAR if name.startswith(f"{FORMULAS}/") or _has_code(area) else UI
        for identity, block, entries in _identified(area):
            if _is_text(block):
                pieces = list(_strings(block, application))
                text = one_line("".join(piece for piece, _ in pieces))
                if has_letter(text):
                    marks = _marks(text, pieces, MARKS | {EMPHASIS: emphasis})
                    paragraphs[identity] = Paragraph(_kind(block), text, marks, entries)
    return paragraphs


def _identified(area: Element) -> Iterator[tuple[str, Element, tuple[str, ...]]]:
    """Yields every block with its id and its index entries, which stand before it.

    Blocks that are left out later are included, so that ids do not depend on them.
    """
    seen, nameless, entries = Counter(), Counter(), []
    for block in area.iter("meta", *BLOCKS):
        if block.tag == "meta":
            if block.get("itemprop") == "keywords" and (entry := one_line(block.get("content") or "")):
                entries.append(entry)
            continue
        identity = block.get("id")
        if not identity:
            kind = f"{block.tag}.{block.get('class') or ''}"
            nameless[kind] += 1
            identity = f"{kind}.{nameless[kind]}"
        seen[identity] += 1
        yield identity if seen[identity] == 1 else f"{identity}.{seen[identity]}", block, tuple(entries)
        entries.clear()


def _is_text(block: Element) -> bool:
    style = block.get("class") or ""
    boxes = {box.get("class") for box in block.iterancestors("div")}
    code = block.tag == "pre" or style in CODE_STYLES or boxes & CODE_BOXES
    link = style == "related" or boxes & LINK_BOXES
    elsewhere = style == "embedded" or "embedded" in boxes
    return not (code or link or elsewhere or style in BOILERPLATE or _hidden(block))


def _kind(block: Element) -> str:
    if block.tag not in ("p", "pre"):
        return block.tag
    return TEXT if next(block.iterancestors("td", "th"), None) is None else CELL


def _hidden(block: Element) -> bool:
    """Tells whether a block is the macOS variant of a switch that has another variant."""
    for variant in block.iterancestors():
        switch = variant.getparent()
        if switch is not None and switch.tag == "span" and switch.get("class") == "switch":
            return variant.get("class") == "MAC" and len(switch) > 1
    return False


def _has_code(area: Element) -> bool:
    """Tells whether a page has code or input, in blocks or in text."""
    classes = {element.get("class") for element in area.iter("p", "span", "div")}
    coded = {name for name, kind in MARKS.items() if kind == CODE}
    return bool(classes & (CODE_STYLES | CODE_BOXES | coded)) or next(area.iter("pre"), None) is not None


def _strings(node: Element, application: str | None, mark: str = "") -> Iterator[tuple[str, str]]:
    """Yields the parts of a block's text, each with its class; a switch has one variant, nested blocks are left out."""
    yield node.text or "", mark
    for child in node:
        if child.tag in NESTED:
            yield " ", mark
        elif child.tag == "span" and child.get("class") == "switchinline":
            shown = _shown(child, application)
            if shown is not None:
                yield from _strings(shown, application, mark)
        elif isinstance(child.tag, str):  # not a comment
            style = child.get("class") or ""
            yield from _strings(child, application, style if style in MARKS or style == EMPHASIS else mark)
        yield child.tail or "", mark


def _marks(text: str, pieces: list[tuple[str, str]], kinds: dict[str, str]) -> tuple[Mark, ...]:
    """Returns the marked parts of a paragraph.

    Args:
        text: the paragraph after `one_line`, which removes or adds only white space and invisible characters.
        pieces: the parts of its text before `one_line`, each with its class or "".
        kinds: kind of each class.

    Parts of the same kind are one mark if only white space and signs of a menu path are between them.
    """
    written = "".join(piece for piece, _ in pieces)
    classes = [mark for piece, mark in pieces for _ in piece]
    shown = (mark for letter, mark in zip(written, classes) if not letter.isspace() and not INVISIBLE.fullmatch(letter))
    positions = [(position, next(shown)) for position, letter in enumerate(text) if not letter.isspace()]
    marks: list[Mark] = []
    for kind, run in groupby(positions, key=lambda position: kinds.get(position[1], "")):
        inside = [position for position, _ in run]
        start, end = inside[0], inside[-1] + 1
        if kind and marks and marks[-1].kind == kind and PATH_SIGNS.fullmatch(text, marks[-1].end, start):
            start = marks.pop().start
        if kind:
            marks.append(Mark(start, end, kind))
    return tuple(marks)


def _shown(switch: Element, application: str | None) -> Element | None:
    variants = {}
    for variant in switch.iterchildren("span"):
        variants.setdefault(variant.get("class") or "default", variant)
    order = ("default", application, *VARIANTS)
    return next((variants[name] for name in order if name in variants), None)
