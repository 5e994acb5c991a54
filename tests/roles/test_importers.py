import base64
import json
import struct
import zlib
from pathlib import Path

import pytest

from rolecraft.errors import RoleError, UserError
from rolecraft.roles import import_roles, load_inventory, save_inventory, to_character_card

DATA = Path(__file__).parent / "data"


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(*texts: tuple[bytes, bytes]) -> bytes:
    """A one-pixel picture with text chunks, as editors of cards write them."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    cards = b"".join(chunk(b"tEXt", keyword + b"\0" + content) for keyword, content in texts)
    return b"\x89PNG\r\n\x1a\n" + header + cards + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def one(path: Path, format: str = "auto"):
    imported = import_roles([path], format)
    (role,) = imported.inventory
    return role, imported.left_out.get(role.id, [])


def test_a_v2_card_is_read_whole():
    role, left_out = one(DATA / "harbour-master.v2.json")
    assert role.id == "ottilie-brandt"
    assert role.description == (
        "Ottilie Brandt runs a small northern harbour and knows every hull in it. the user is new here."
    )
    assert role.style == "Brisk, exact, fond of tide tables."
    assert role.instructions == (
        "Stay Ottilie Brandt at all times.",
        "Fog lies over the quay and Ottilie Brandt waits for the last ferry.",
    )
    assert role.catchphrases == ("You are late. The tide is not.", "Rope first, questions later.")
    assert [(d.user, d.reply) for d in role.demonstrations] == [
        ("May I moor here?", "Berth nine, and mind the chain."),
        ("Is it safe?", "The water never is.\nThe mooring is."),
    ]
    assert role.knowledge == ("The ferry leaves at six.", "The basin freezes from January."), "in order of insertion"
    assert role.tags == ("sea", "official")
    assert set(left_out) == {
        "avatar",
        "data.alternate_greetings[1] (over 200 characters)",
        "data.mes_example (1 turns that are no question with a reply)",
        "data.creator_notes",
        "data.creator",
        "data.character_version",
        "data.character_book.name",
        "data.character_book.entries[2] (switched off)",
        "data.character_book.entries[].keys",
        "data.character_book.entries[].content (@@ decorators)",
        "data.extensions.depth_prompt",
    }


def test_a_v3_card_says_what_it_could_not_carry():
    role, left_out = one(DATA / "harbour-master.v3.json")
    assert role.name == "Ottilie Brandt"
    assert role.description == "Tilly runs a small northern harbour."
    assert set(left_out) == {
        "spec_version 3.1 (what it adds to 3.0)",
        "data.nickname (stands for {{char}} in the texts)",
        "data.creation_date",
        "data.modification_date",
        "data.assets",
    }


def test_a_picture_gives_the_newer_card_in_it(tmp_path):
    v2 = base64.b64encode((DATA / "harbour-master.v2.json").read_bytes())
    v3 = base64.b64encode((DATA / "harbour-master.v3.json").read_bytes())
    path = tmp_path / "card.png"
    path.write_bytes(png((b"chara", v2)))
    assert one(path)[0].style == "Brisk, exact, fond of tide tables."
    path.write_bytes(png((b"chara", v2), (b"ccv3", v3)))
    assert one(path)[0].style == "Brisk."


def test_an_assistant_axis_role_takes_its_name_from_the_file():
    role, left_out = one(DATA / "rain_maker.json")
    assert (role.id, role.name) == ("rain-maker", "rain maker")
    assert role.instructions == (
        "You are a rain maker who reads clouds for farmers.",
        "Speak as a rain maker, hopeful and weathered.",
    )
    assert role.questions == ("What does a mackerel sky tell you?", "Who pays when the rain stays away?")
    assert left_out == ["eval_prompt"]


def test_the_default_role_of_the_assistant_axis_loses_its_empty_instruction(tmp_path):
    path = tmp_path / "default.json"
    path.write_text(json.dumps({"instruction": [{"pos": ""}, {"pos": "You are an AI.", "neg": "You are a person."}]}))
    role, left_out = one(path)
    assert role.instructions == ("You are an AI.",)
    assert left_out == ["instruction[0] (empty)", "instruction[].neg"]


def test_a_tinytroupe_agent():
    role, left_out = one(DATA / "Mara.agent.json")
    assert role.id == "mara-lindqvist"
    assert role.description == (
        "You are Mara Lindqvist, 41 years old, Female, Swedish, living in Malmo, Sweden, Glazier at Lindqvist Glass. "
        "You cut, lead and set coloured glass. You are patient. You dislike hurry."
    )
    assert role.style == "Short sentences, talks of light."
    assert role.values == ("Light is a material.",)
    assert role.goals == ("Restore one church window a year.",)
    assert role.knowledge == (
        "Reads old lead lines.", "Trained as a glazier.", "an interest: Old windows.", "Has a scar from a broken pane.",
    )  # fmt: skip
    assert role.relations == {"per": "Your apprentice, who is quick."}
    assert set(left_out) == {
        "persona.behaviors", "persona.health", "persona.personality.big_five", "persona.preferences.likes",
        "persona.preferences.dislikes",
    }  # fmt: skip


def test_sotopia_profiles_come_as_a_list():
    imported = import_roles([DATA / "profiles.json"])
    assert [role.id for role in imported.inventory] == ["ines-okafor", "tomas-reyes"]
    ines, tomas = imported.inventory
    assert ines.description == (
        "You are Ines Okafor, 33 years old, ferry captain. Ines keeps bees on the roof of the terminal. "
        "Ines is calm and stubborn. Way of deciding: analytical."
    )
    assert tomas.description.startswith("You are Tomas Reyes, clock repairer. ")
    assert ines.values == ("care", "fairness", "benevolence")
    assert ines.knowledge == ("a secret: She failed her first licence test",)
    assert ines.tags == ("sotopia", "harbour")
    assert imported.left_out["ines-okafor"] == ["pk", "gender", "gender_pronoun", "big_five", "mbti"]


def test_tables_are_read(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,name,description,values,traits,demonstrations\n"
        "miller,Miller,You grind.,bread | fair weight,calm => 0.5 | bold => 0.1,Hello => Mind it. | Bye => Aye.\n"
    )
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "baker", "name": "Baker", "description": "You bake."}) + "\n")
    miller, baker = import_roles([tmp_path / "a.csv", tmp_path / "b.jsonl"]).inventory
    assert miller.values == ("bread", "fair weight")
    assert miller.traits == {"calm": 0.5, "bold": 0.1}
    assert [(d.user, d.reply) for d in miller.demonstrations] == [("Hello", "Mind it."), ("Bye", "Aye.")]
    assert baker.name == "Baker"


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".jsonl", ".csv"])
def test_import_save_load_is_equal(suffix, tmp_path):
    imported = import_roles(sorted(path for path in DATA.iterdir() if ".v3" not in path.name)).inventory
    assert len(imported) == 5
    assert load_inventory(save_inventory(imported, tmp_path / f"all{suffix}")).roles == imported.roles


@pytest.mark.parametrize("wrap", ["json", "png"])
def test_an_exported_card_is_the_same_role_again(wrap, tmp_path):
    path = tmp_path / f"card.{wrap}"
    for role in load_inventory("core-v1").roles[::7]:
        text = json.dumps(to_character_card(role)).encode()
        path.write_bytes(text if wrap == "json" else png((b"chara", base64.b64encode(text))))
        assert one(path) == (role, [])


def test_what_an_editor_changes_in_an_exported_card_wins(tmp_path):
    exported = to_character_card(load_inventory("core-v1")["pirate"])
    exported["data"] |= {"system_prompt": "Be a buccaneer.", "tags": ["sea"]}
    exported["data"]["extensions"]["depth_prompt"] = {"depth": 4}
    (tmp_path / "card.json").write_text(json.dumps(exported))
    role, left_out = one(tmp_path / "card.json")
    assert role.instructions[0] == "Be a buccaneer."
    assert len(role.instructions) == 5
    assert role.tags == ("sea",)
    assert left_out == ["data.extensions.depth_prompt"]


def card(**changes) -> str:
    document = json.loads((DATA / "harbour-master.v2.json").read_text())
    data = changes.get("data", {})
    if isinstance(data, dict):
        changes["data"] = document["data"] | data
    return json.dumps(document | changes)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", r"a\.json:1:2: not valid JSON"),
        ("a.json", "[1]", "not a file of a known project"),
        ("a.json", '{"x": 1}', "found: x"),
        ("a.json", card(spec="chara_card_v9"), "spec is 'chara_card_v9'; expected one of"),
        ("a.json", card(spec_version="3.0"), "spec_version '3.0' does not belong"),
        ("a.json", card(data={"name": ""}), "data.name is missing or empty"),
        ("a.json", card(data={"name": "静"}), "cannot make an id of the name"),
        ("a.json", card(data={"name": ["x"]}), "data.name must be a text, got list"),
        ("a.json", card(data={"description": "", "personality": ""}), "both empty"),
        ("a.json", card(data={"character_book": [1]}), r"data\.character_book must be a mapping, got list"),
        ("a.json", card(data={"character_book": {"entries": [1]}}), r"entries\[0\] must be a mapping, got int"),
        ("a.json", card(data={"character_book": {"entries": 1}}), "entries must be a list, got int"),
        ("a.json", card(data={"extensions": {"rolecraft": [1]}}), "extensions.rolecraft must be a mapping"),
        (
            "a.json",
            card(data={"extensions": {"rolecraft": {"goal": ["x"]}}}),
            "unknown key 'goal'. Did you mean 'goals'",
        ),
        ("a.json", card(data=None), "data is missing"),
        ("a.json", card(data=[1]), r"data must be a mapping, got list"),
        ("a.json", card(spec="chara_card_v3", spec_version="2.0"), "expected '3.0'"),
        ("a.json", '{"name": "x", "first_mes": "", "mes_example": ""}', "a V1 card"),
        ("a.json", '{"instruction": [{"neg": "x"}], "questions": []}', r"instruction\[0\]\.pos is missing"),
        ("a.json", '{"instruction": [], "questions": []}', "holds no text under 'pos'"),
        ("a.json", '{"instruction": "x", "questions": []}', "instruction must be a list"),
        ("a.json", '{"persona": {"name": ""}}', "persona.name is missing"),
        ("a.json", '{"persona": {"name": "X", "relationships": [{}]}}', r"relationships\[0\]\.name is missing"),
        ("a.json", '{"persona": {"name": "X", "relationships": "Per"}}', "relationships must be a list, got str"),
        ("a.json", '{"first_name": "", "last_name": "x"}', "first_name is missing"),
        ("a.csv", "id,nam,description\nx,X,text\n", r"a\.csv:2: unknown column 'nam'\. Did you mean 'name'"),
        ("a.csv", "id,name,description,level\nx,X,text,high\n", "column 'level': expected a number, got 'high'"),
        ("a.csv", "id,name,description,traits\nx,X,text,calm\n", "expected 'left => right'"),
        ("a.csv", "id,name\nx,X,extra\n", "more cells than the header"),
        ("a.jsonl", '{"id": "x", "name": "X", "description": "d"}\n{\n', r"a\.jsonl:2:2: not valid JSON"),
        (
            "a.jsonl",
            '{"id": "x", "name": "X", "descripton": "d"}\n',
            "unknown key 'descripton'. Did you mean 'description'",
        ),
    ],
)
def test_what_cannot_be_read_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        import_roles([tmp_path / name])


GOOD = png((b"chara", base64.b64encode(b"{}")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GIF89a", "not a PNG"),
        (GOOD[:60], "cut off at byte 60"),
        (GOOD.replace(b"chara", b"charb"), "damaged"),
        (png(), "holds no character card"),
        (png((b"chara", b"***")), "not base64"),
        (png((b"chara", base64.b64encode(b"\xff"))), "not base64 of UTF-8"),
        (png((b"chara", base64.b64encode(b"{"))), "card.png:1:2: not valid JSON"),
        (png((b"chara", base64.b64encode(b"[]"))), "holds no role"),
    ],
    ids=["signature", "cut off", "checksum", "no card", "base64", "encoding", "JSON", "empty"],
)
def test_a_bad_picture_is_named(content, message, tmp_path):
    path = tmp_path / "card.png"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        import_roles([path])


def test_formats_are_checked(tmp_path):
    with pytest.raises(RoleError, match="Did you mean 'sotopia'"):
        import_roles([DATA / "profiles.json"], "sotopi")
    with pytest.raises(RoleError, match="not a file of the format 'tinytroupe'"):
        import_roles([DATA / "profiles.json"], "tinytroupe")
    with pytest.raises(RoleError, match="no such file"):
        import_roles([tmp_path / "none.json"])


def test_two_files_may_not_give_the_same_id():
    with pytest.raises(RoleError, match=r"v3\.json: gives the id 'ottilie-brandt', as .*v2\.json does"):
        import_roles([DATA / "harbour-master.v2.json", DATA / "harbour-master.v3.json"])
