"""The wire format of protocol buffers: messages by hand, and those that SentencePiece writes."""

import pytest

from fairseq_xl.io.protobuf import field, fields

#: the examples of the format's description: 150 in field 1, "testing" in field 2
BY_HAND = bytes.fromhex("089601") + bytes.fromhex("120774657374696e67")


def test_messages_by_hand():
    assert list(fields(BY_HAND)) == [(1, 150), (2, b"testing")]
    assert field(1, 150) + field(2, "testing") == BY_HAND
    assert field(3, field(1, 150)) == bytes.fromhex("1a03089601")
    assert field(2, 1.5) == bytes.fromhex("150000c03f") and field(43, -1) == bytes.fromhex("d802ffffffffffffffffff01")
    assert list(fields(bytes.fromhex("150000c03f090000000000000000"))) == [
        (2, bytes.fromhex("0000c03f")),
        (1, bytes(8)),
    ]


@pytest.mark.parametrize(
    "message, expected",
    [
        (BY_HAND[:-1], "field 2 is cut short"),
        (BY_HAND[:2], "an integer is cut short"),
        (b"\x08" + b"\xff" * 11, "an integer is cut short"),
        (b"\x0b", "field 1 has the wire type 3"),
    ],
)
def test_damaged_messages(message, expected):
    with pytest.raises(ValueError, match=expected):
        list(fields(message))
