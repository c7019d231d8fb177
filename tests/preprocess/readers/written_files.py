"""What readers have written."""


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def documents(path):
    """[[line]] of text with an empty line between documents."""
    return [document.split("\n") for document in path.read_text(encoding="utf-8").strip("\n").split("\n\n")]


def texts(folder, pattern="*.tsv"):
    """{path in the folder: text} of all its files of this name."""
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob(pattern)}


def contents(folder):
    """{path in the folder: bytes} of all its files but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def times(folder):
    """{path in the folder: time of its last change} of all its files but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}
