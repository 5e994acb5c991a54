import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import IllegalActionError
from rolecraft.worlds import Message, MessageLog, one_line_per_message, read_object, read_recipients

SEATS = ("Ann", "Ben", "Cy")


def log():
    return MessageLog([
        Message(0, "Ann", "hello all"),
        Message(1, "Ben", "a secret", ("Ann",)),
        Message(2, "Cy", "leaves", kind="leave"),
    ])  # fmt: skip


class TestVisibility:
    def test_private_messages_reach_sender_and_recipients_alone(self):
        seen = {agent: [message.step for message in log().visible_to(agent)] for agent in SEATS}
        assert seen == {"Ann": [0, 1, 2], "Ben": [0, 1, 2], "Cy": [0, 2]}

    def test_since(self):
        assert [message.step for message in log().visible_to("Ann", since=1)] == [1, 2]

    def test_transcript(self):
        assert one_line_per_message(log()) == ("[Ann] hello all\n[Ben to Ann] a secret\n[Cy] (leave) leaves")
        assert one_line_per_message(log()[:1], {"Ann": "a stranger"}) == "[a stranger] hello all"

    @given(st.text(max_size=40))
    def test_no_text_passes_for_anothers_message(self, text):
        lines = one_line_per_message([Message(0, "Ann", text), Message(1, "Ben", "x")]).split("\n")
        assert [line[:5] for line in lines if line.startswith("[")] == ["[Ann]", "[Ben]"]

    def test_rows_are_json(self):
        assert log().rows()[1] == {"step": 1, "sender": "Ben", "text": "a secret", "to": ["Ann"], "kind": "speak"}


class TestReading:
    @pytest.mark.parametrize(
        "text", ['{"to": "Ann"}', 'I say:\n```json\n{"to": "Ann"}\n```', '{broken {"to": "Ann"} x']
    )
    def test_object_amid_prose(self, text):
        assert read_object(text) == {"to": "Ann"}

    @pytest.mark.parametrize("text", ["", "no object", "{", "[1]", '{"to": ', "{" * 5000])
    def test_no_object(self, text):
        with pytest.raises(IllegalActionError, match="JSON object"):
            read_object(text)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [(None, ()), ("", ()), ([], ()), ("ben", ("Ben",)), (["Cy", "Ben"], ("Cy", "Ben"))],
    )
    def test_recipients(self, value, expected):
        assert read_recipients(value, "Ann", SEATS) == expected

    @pytest.mark.parametrize(
        ("value", "message"),
        [("Bne", "did you mean 'Ben'"), ("ann", "itself"), (3, "list of names"), (["Ben", "ben"], "twice")],
    )
    def test_bad_recipients(self, value, message):
        with pytest.raises(IllegalActionError, match=r"(?i)" + message):
            read_recipients(value, "Ann", SEATS)
