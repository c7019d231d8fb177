"""A help page: its paragraphs' ids, kinds and texts.

A page repeats paragraphs of others ("embedded"), shows some for one system or application only ("switch"), and ends
in links to further pages; the words of a program are set as code. What is left is text at its home page.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from lxml import etree, html

from preprocess.readers.text import has_letter, one_line

BLOCKS = ("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre")
NESTED = {*BLOCKS, "table", "ul", "ol", "br"}  # inside a block: a blank in its text
CODE = {"code", "codeintable", "smathcode"}
CODE_BOXES = {"bascode", "pycode", "sqlcode"}
LINK_BOXES = {"relatedbody", "relatedtopics"}
BOILERPLATE = {"howtogetheader", "youtube_consent", "bug"}
# the browser's own pages, not help
INTERFACE = {"shared/help/browserhelp.html", "shared/05/err_html.html"}
# of what a switch shows, the variant of the page's own application comes after "default" only
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
# then these in order; not MAC, which the packages' systems never show
VARIANTS = ("UNIX", "WIN", *APPLICATIONS.values())

TEXT, CELL = "text", "cell"  # kinds of paragraphs: running text, and cells of tables; headings are h1 to h6

Element: TypeAlias = etree._Element  # the name that lxml documents for annotations


class Paragraph(NamedTuple):
    """A paragraph of a page."""

    kind: str  # TEXT, CELL, or a heading's tag
    text: str


def read_page(content: bytes, name: str) -> dict[str, Paragraph]:
    """Paragraphs of a page in order, by id; text of code, links, other pages' paragraphs and bare numbers left out.

    Args:
        content: the page, HTML in UTF-8.
        name: its path below the language's folder; its first part is the application.

    A paragraph without an id is counted by its tag and class, one whose id was there before by its number: the same
    place gets the same id in every language. A page without a display area has no paragraphs.
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
    """Every block with its id, also those that are left out, so that what is left out changes no other's id."""
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
    """Whether a block is the variant of a switch for macOS, beside another one."""
    for variant in block.iterancestors():
        switch = variant.getparent()
        if switch is not None and switch.tag == "span" and switch.get("class") == "switch":
            return variant.get("class") == "MAC" and len(switch) > 1
    return False


def _strings(node: Element, application: str | None) -> Iterator[str]:
    """Text of a block, of each switch inside the variant that is shown, of nested blocks none."""
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
