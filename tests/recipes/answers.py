"""Small task files of recipes."""

from tests.builders import squad

TAGGED = "the\tO\nriver\tB-X\nstone\tI-X\n\nwater\tO\n\n"
RANKED = "1\triver\tthe river\n0\triver\twater\n"


def asked(name):
    return squad(("the river stone", (name, "river", "river")))
