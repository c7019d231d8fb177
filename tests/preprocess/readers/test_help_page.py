"""Reading a page of LibreOffice help, and recognizing untranslated English."""

import pytest
from help_pages import html

from preprocess.readers.libreoffice_help.languages import LANGUAGES, parse_languages
from preprocess.readers.libreoffice_help.page import read_page
from preprocess.readers.libreoffice_help.translation import has_other_numbers, is_translated


def read(body, name="swriter/01/page.html"):
    return {identity: paragraph.text for identity, paragraph in read_page(html(body).encode(), name).items()}


def marked(body, name="swriter/01/page.html"):
    """Kind and text of each mark of the only paragraph."""
    (paragraph,) = read_page(html(body).encode(), name).values()
    return [(mark.kind, paragraph.text[mark.start : mark.end]) for mark in paragraph.marks]


def test_headings_paragraphs_lists_tables_and_notes_are_read_in_order():
    body = """<h1 id="hd_1" dir="auto"><a name="top"></a>Frames</h1>
    <p id="par_1" class="paragraph">A <span class="emph">frame</span>
       holds\u00a0text&nbsp;<br>and&shy; pictures .</p>
    <ul><li><p id="par_2" class="listitem">Choose <span class="menuitem">Insert</span>.</p></li></ul>
    <table><tr><td><p id="par_3" class="tablecontentintable">Width</p></td></tr></table>
    <div class="note"><div class="noteicon"><img alt="note"></div>
    <div class="notetext"><p id="par_4">Frames may be empty.</p></div></div>
    <!-- nothing --><p id="par_5" class="paragraph">One<!-- two -->three</p>"""
    assert list(read(body).items()) == [
        ("hd_1", "Frames"),
        ("par_1", "A frame holds text and pictures."),
        ("par_2", "Choose Insert."),
        ("par_3", "Width"),
        ("par_4", "Frames may be empty."),
        ("par_5", "Onethree"),
    ]


def test_kinds_tell_headings_cells_and_text():
    body = """<h1 id="a">Frames</h1><p id="b">Text</p><h3 id="c">More</h3><ul><li><p id="d">Item</p></li></ul>
    <table><tr><td><p id="e">Cell</p></td><th><p id="f">Head</p></th></tr></table>"""
    found = read_page(html(body).encode(), "swriter/x.html")
    assert "".join(found) == "abcdef"
    assert [paragraph.kind for paragraph in found.values()] == ["h1", "text", "h3", "text", "cell", "cell"]


@pytest.mark.parametrize(
    "body",
    [
        '<div class="embedded"><h2 id="x">At home elsewhere</h2></div>',
        '<p id="x" class="embedded">At home elsewhere</p>',
        '<div class="relatedtopics"><div class="relatedbody"><p id="x">Another page</p></div></div>',
        '<p id="x" class="related">Related Topics</p>',
        '<pre id="x">PRINT one</pre>',
        '<div class="bascode"><p id="x">PRINT one</p></div>',
        '<p id="x" class="code">PRINT one</p>',
        '<p id="x" class="howtogetheader">To access this command...</p>',
        '<p id="x" class="paragraph">1234 .</p>',
        '<p id="x" class="paragraph"><img src="x.png" alt="An icon"></p>',
    ],
)
def test_what_is_no_text_of_the_page_is_left_out(body):
    assert read(body + '<p id="kept">Text</p>') == {"kept": "Text"}


SWITCH = '<p id="p">Choose <span id="s" class="switchinline">{}</span>.</p>'
MAC, CALC, WRITER, DEFAULT, WIN = (
    f'<span hidden="true" id="{name}x"{style}>{name}</span>'
    for name, style in [(n, f' class="{n}"') for n in ("MAC", "CALC", "WRITER")]
    + [("default", ""), ("WIN", ' class="WIN"')]
)


@pytest.mark.parametrize(
    "variants, name, shown",
    [
        (MAC + DEFAULT, "swriter/x.html", "default"),
        (CALC + WRITER, "swriter/x.html", "WRITER"),
        (WRITER + CALC, "scalc/x.html", "CALC"),
        (WRITER + CALC, "shared/x.html", "WRITER"),
        (MAC + WIN, "shared/x.html", "WIN"),
        (CALC + DEFAULT, "scalc/x.html", "default"),
        (MAC, "swriter/x.html", ""),  # a variant for macOS alone is not shown
    ],
)
def test_one_variant_of_a_switch_is_read(variants, name, shown):
    assert read(SWITCH.format(variants), name) == {"p": f"Choose {shown}.".replace(" .", ".")}


def test_blocks_of_a_macos_variant_are_left_out_beside_another():
    two = (
        '<span class="switch"><span class="MAC"><p id="a">Command</p></span>'
        '<span id="defaultx"><p id="b">Control</p></span></span>'
    )
    assert read(two) == {"b": "Control"}
    assert read('<span class="switch"><span class="MAC"><p id="a">Command</p></span></span>') == {"a": "Command"}


def test_ids_come_from_the_structure_not_from_the_text():
    """The same place gets the same id where another language has code, or nothing, before it."""
    one = '<p class="paragraph">First</p><p class="paragraph">Second</p><p id="a">Third</p><p id="a">Fourth</p>'
    two = '<p class="paragraph"> </p><p class="paragraph">Zweitens</p><p id="a">3</p><p id="a">Viertens</p>'
    english, german = read(one), read(two)
    assert len(english) == 4
    assert {english[identity]: text for identity, text in german.items()} == {
        "Second": "Zweitens",
        "Fourth": "Viertens",
    }


def test_a_line_end_between_chinese_characters_is_no_blank():
    assert read('<p id="a">打开\n   文件 menu\nbar</p>') == {"a": "打开文件 menu bar"}


def test_a_page_without_display_area_is_empty():
    assert read_page(b"<html><body><p id='a'>Text</p></body></html>", "x.html") == {}


@pytest.mark.parametrize(
    "style, kind",
    [
        *[("emph", "UI"), ("menuitem", "UI"), ("widget", "UI"), ("keycode", "KEY")],
        *[("literal", "CODE"), ("input", "CODE"), ("code", "CODE")],
    ],
)
def test_a_class_marks_its_text(style, kind):
    body = f'<p id="a">\n  Then choose &shy;<span class="{style}">\n Insert\u00a0 <b>now</b></span> .</p>'
    assert marked(body) == [(kind, "Insert now")]
    assert marked(f'<p id="a">All <span class="{style}">Insert</span></p>') == [(kind, "Insert")]


@pytest.mark.parametrize("style", ["avis", "acronym", "productname", "sup"])
def test_other_classes_mark_nothing(style):
    assert marked(f'<p id="a">Then <span class="{style}">Insert</span>.</p>') == []
    inner = f'<p id="a"><span class="{style}">Then choose <span class="emph">Insert</span></span>.</p>'
    assert marked(inner) == [("UI", "Insert")]


@pytest.mark.parametrize(
    "between, joined",
    [(" - ", True), (" – ", True), (" ", True), ("", True), (" ▸ ", False), (" and ", False), (", ", False)],
)
def test_parts_of_a_menu_path_are_one_mark(between, joined):
    body = f'<p id="a">In <span class="emph">Insert</span>{between}<span class="menuitem">Frame</span>.</p>'
    assert marked(body) == ([("UI", f"Insert{between}Frame")] if joined else [("UI", "Insert"), ("UI", "Frame")])


def test_keys_of_the_shown_variant_are_marked():
    switch = SWITCH.format('<span class="MAC"><span class="keycode">Command</span></span><span>Ctrl</span>')
    assert marked(switch.replace("<span>Ctrl", '<span><span class="keycode">Ctrl</span>')) == [("KEY", "Ctrl")]
    pair = '<p id="a">Press <span class="keycode">Ctrl</span>+<span class="keycode">F8</span> <i>now</i></p>'
    assert marked(pair) == [("KEY", "Ctrl+F8")]


def test_marks_of_other_kinds_stay_apart():
    body = '<p id="a">名称<span class="emph">打开</span><span class="literal">Sub\n</span>文件</p>'
    assert marked(f"{body}") == [("?", "打开"), ("CODE", "Sub")]


@pytest.mark.parametrize(
    "body, name, kind",
    [
        ("", "scalc/x.html", "UI"),
        ('<p class="code">PRINT 1</p>', "scalc/x.html", "?"),
        ("<pre>PRINT 1</pre>", "scalc/x.html", "?"),
        ('<div class="bascode"><p>PRINT 1</p></div>', "swriter/x.html", "?"),
        ('<p>1 <span class="input">2</span></p>', "swriter/x.html", "?"),
        ("", "smath/x.html", "?"),
    ],
)
def test_emphasis_is_unclear_on_pages_with_code(body, name, kind):
    paragraphs = read_page(html(f'<p id="a">The <span class="emph">Number</span></p>{body}').encode(), name)
    assert [mark.kind for mark in paragraphs["a"].marks] == [kind]


def test_index_entries_stand_in_front_of_their_paragraph():
    entry = '<meta itemprop="keywords" content="{}">'
    body = f"""<a name="bm_1"></a>{entry.format("frames,adding ")}{entry.format("pictures")}<h1 id="a">Frames</h1>
    <p id="b">Text</p>{entry.format("gone")}<p id="c" class="code">PRINT</p><p id="d">More</p>
    {entry.format("")}<meta name="other" content="x"><h2 id="e">Last</h2>{entry.format("nothing")}"""
    found = {identity: paragraph.entries for identity, paragraph in read_page(html(body).encode(), "x.html").items()}
    assert found == {"a": ("frames,adding", "pictures"), "b": (), "d": (), "e": ()}


@pytest.mark.parametrize(
    "text, english, language, expected",
    [
        ("Frames", "Frames", "de", False),
        ("Rahmen", "Frames", "de", True),
        ("Choose the Frame tool to draw the frames", "Choose the frame tool to draw frames", "de", False),
        ("Anchor", "Anchors", "de", True),
        ("Zeigt die Rahmen im Dialog", "Shows the frames of this dialog", "de", True),
        ("Frames", "The frames", "ru", False),
        ("Рамки Frames", "The frames", "ru", True),
        ("フレーム", "The frames", "ja", True),
        ("框", "The frames", "ja", True),
        ("框", "The frames", "ko", False),
        ("Πλαίσια", "The frames", "el", True),
    ],
)
def test_english_left_in_place_is_no_translation(text, english, language, expected):
    assert is_translated(text, english, LANGUAGES[language]) == expected


@pytest.mark.parametrize(
    "text, english, expected",
    [
        ("Fehler 502", "Error 503", True),
        ("Fehler 1.000", "Error 1,000", False),
        ("Fehler zehn", "Error 10", False),
        ("Von 10 bis 20", "From 20 to 30", False),
        ("3 Fehler", "4 errors", True),
        ("Seite 3", "Page 4", False),
    ],
)
def test_texts_with_other_numbers_are_no_translations(text, english, expected):
    assert has_other_numbers(text, english) == expected


def test_english_comes_first_among_the_languages():
    assert [language.code for language in parse_languages("fr,en,de")] == ["en", "fr", "de"]
