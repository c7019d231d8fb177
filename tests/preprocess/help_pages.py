"""Pages in the HTML of LibreOffice help packages, and packages of them. The text was written for these tests."""

import subprocess

TOPICS = (
    "kettle ladder basket lantern anchor bottle hammer needle pillow saddle carpet mirror blanket candle "
    "curtain drawer feather garden helmet island"
).split()
SENTENCES = {
    "en": (
        "The {0} dialog shows every {0} that belongs to chapter {1} of the book.",
        "Press Enter to put the {0} number {1} behind the words that you have chosen.",
        "A {0} without a name is found by its place {1} in the long list.",
    ),
    "de": (
        "Der Dialog {0} zeigt jedes Objekt der Art {0}, das zu Kapitel {1} des Buches gehört.",
        "Die Eingabetaste setzt {0} Nummer {1} hinter die gewählten Wörter.",
        "Ohne Namen wird {0} durch die Stelle {1} in der langen Liste gefunden.",
    ),
    "ru": (
        "Окно {0} показывает каждый предмет {0} из главы {1} этой книги.",
        "Клавиша ввода ставит предмет {0} номер {1} за выбранными словами.",
        "Без имени предмет {0} находят по месту {1} в длинном списке.",
    ),
}
FOLDERS = {"en": ("en-us", "en-US"), "de": ("de", "de"), "ru": ("ru", "ru")}
EXAMPLE = {"en": "Example", "de": "Beispiel", "ru": "Пример"}


def html(body):
    """A page of the packages around a body: header and debug information have paragraphs of their own."""
    return (
        '<!DOCTYPE html>\n<html lang="xx" dir="ltr"><head><base href="../../../../">\n'
        '<meta http-equiv="Content-Type" content="text/html; charset=utf-8"><title>Title</title></head><body>'
        '<header id="TopLeftHeader"><a class="logo" href="x.html"><p dir="auto">Office Help</p></a></header>'
        '<aside class="leftside"><div id="Index"><div class="index-label" dir="auto">Index</div></div></aside>'
        f'<div id="DisplayArea" itemprop="softwareHelp">\n{body}\n</div>\n<div id="SearchFrame"></div>'
        '<footer><div id="DEBUG" class="debug"><h3 class="bug">Help content debug info:</h3>'
        '<p dir="auto">This page is: somewhere</p></div></footer></body></html>'
    )


def paragraph(identity, text):
    return f'<p id="{identity}" class="paragraph" dir="auto">{text}</p>'


def pages(language, count=60):
    """`count` pages of a language, each with a heading that many share and sentences of its own."""
    written = {}
    for number in range(count):
        topic = TOPICS[number % len(TOPICS)]
        lines = [f'<h1 id="hd_id1" dir="auto"><a name="x"></a>{EXAMPLE[language]}</h1>']
        lines += [
            paragraph(f"par_id{place}", sentence.format(topic, 100 + 3 * number + place))
            for place, sentence in enumerate(SENTENCES[language])
        ]
        written[f"swriter/guide/page{number:03d}.html"] = html("\n".join(lines))
    return written


def write_package(folder, language, contents):
    """A Debian package with these pages; its path."""
    name, pages_folder = FOLDERS[language]
    tree = folder / f"tree-{language}"
    for path, text in contents.items():
        target = tree / "usr/share/libreoffice/help" / pages_folder / "text" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    licence = tree / f"usr/share/doc/libreoffice-help-{name}/copyright"
    licence.parent.mkdir(parents=True)
    licence.write_text("Licence: as you like\n")
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        f"Package: libreoffice-help-{name}\nVersion: 1\nArchitecture: all\n"
        "Maintainer: Nobody <nobody@localhost>\nDescription: pages\n"
    )
    path = folder / f"libreoffice-help-{name}_1_all.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(path)], check=True, capture_output=True
    )
    return path
