"""Lines with each character that programs take for white space, for a line end, or for nothing."""

#: white space other than the space and the line feed
SPACES = (
    "\t\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
#: characters that show nothing
HIDDEN = "\x01\x7f\xad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u202b\u2060\u2069\u3164\ufe0f\ufeff\U000e0061"

PLACES = ("{}the house", "the{}house", "the house{}", "{}", "the {} house", " {} ", "the house {}\r")
LINES = [place.format(character) for character in (*SPACES, *HIDDEN) for place in PLACES]
