"""A help page: ids, kinds and texts of its paragraphs.

Paragraphs embedded from other pages, links to further pages and code are left out. Of paragraphs that depend on the
system or the application ("switch"), one variant is read.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from lxml import etree, html

from preprocess.readers.text import has_letter, one_line

BLOCKS = ("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre")
NESTED = {*BLOCKS, "table", "ul", "ol", "br"}  # inline elements that are a blank in the text of a block
CODE = {"code", "codeintable", "smathcode"}
CODE_BOXES = {"bascode", "pycode", "sqlcode"}
LINK_BOXES = {"relatedbody", "relatedtopics"}
BOILERPLATE = {"howtogetheader", "youtube_consent", "bug"}
# pages of the help browser itself
INTERFACE = {"shared/help/browserhelp.html", "shared/05/err_html.html"}
# variants of a switch, best first: "default", then that of the page's own application,
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
# then these; never MAC, which these packages do not show
VARIANTS = ("UNIX", "WIN", *APPLICATIONS.values())

TEXT, CELL = "text", "cell"  # kinds of paragraphs: running text and cells of tables; headings are h1 to h6

Element: TypeAlias = etree._Element  # lxml's documented name for annotations


class Paragraph(NamedTuple):
    """A paragraph of a page."""

    kind: str  # TEXT, CELL, or a heading's tag
    text: str


def read_page(content: bytes, name: str) -> dict[str, Paragraph]:
    """Reads the paragraphs of a page, in order and by id, without code, links, embedded paragraphs and bare numbers.

    Args:
        content: the page, HTML in UTF-8.
        name: its path below the language's folder; its first part is the application.

    A paragraph without an id gets its tag, class and a number; a repeated id gets a number. The same place thus has the
    same id in every language. A page without a display area has no paragraphs.
    """
    tree = html.document_fromstring(content, parser=html.HTMLParser(encoding="utf-8"))
    application = APPLICATIONS.get(name.split("/")[0])
    paragraphs = {}
    for area in tree.xpath('//div[@id="DisplayArea"]'):
        for identity, block in _identified(area):
            if _is_text(block):
                text = one_line("".join(_strings(block, application)))
                if has_letter(text):
                    paragraphs[identity] = Paragraph(_kind(block), text)
    return paragraphs


def _identified(area: Element) -> Iterator[tuple[str, Element]]:
    """Yields every block with its id, also blocks that are left out later, so that ids do not depend on them."""
    seen, nameless = Counter(), Counter()
    for block in area.iter(*BLOCKS):
        identity = block.get("id")
        if not identity:
            kind = f"{block.tag}.{block.get('class') or ''}"
            nameless[kind] += 1
            identity = f"{kind}.{nameless[kind]}"
        seen[identity] += 1
        yield identity if seen[identity] == 1 else f"{identity}.{seen[identity]}", block


def _is_text(block: Element) -> bool:
    style = block.get("class") or ""
    boxes = {box.get("class") for box in block.iterancestors("div")}
    code = block.tag == "pre" or style in CODE or boxes & CODE_BOXES
    link = style == "related" or boxes & LINK_BOXES
    elsewhere = style == "embedded" or "embedded" in boxes
    return not (code or link or elsewhere or style in BOILERPLATE or _hidden(block))


def _kind(block: Element) -> str:
    if block.tag not in ("p", "pre"):
        return block.tag
    return TEXT if next(block.iterancestors("td", "th"), None) is None else CELL


def _hidden(block: Element) -> bool:
    """Whether a block is the macOS variant of a switch that has another variant."""
    for variant in block.iterancestors():
        switch = variant.getparent()
        if switch is not None and switch.tag == "span" and switch.get("class") == "switch":
            return variant.get("class") == "MAC" and len(switch) > 1
    return False


def _strings(node: Element, application: str | None) -> Iterator[str]:
    """Text of a block without its nested blocks, with the shown variant of each switch."""
    yield node.text or ""
    for child in node:
        if child.tag in NESTED:
            yield " "
        elif child.tag == "span" and child.get("class") == "switchinline":
            shown = _shown(child, application)
            if shown is not None:
                yield from _strings(shown, application)
        elif isinstance(child.tag, str):  # not a comment
            yield from _strings(child, application)
        yield child.tail or ""


def _shown(switch: Element, application: str | None) -> Element | None:
    variants = {}
    for variant in switch.iterchildren("span"):
        variants.setdefault(variant.get("class") or "default", variant)
    order = ("default", application, *VARIANTS)
    return next((variants[name] for name in order if name in variants), None)
