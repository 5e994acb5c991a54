import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import RoleError, UserError
from rolecraft.roles import (
    Demonstration,
    Inventory,
    Phase,
    Role,
    load_inventory,
    load_questions,
    parse_role,
    save_inventory,
)

ROLE = {
    "id": "miller",
    "name": "Miller",
    "description": "You grind grain.",
    "values": ["bread"],
    "traits": {"calm": 0.5},
}


def test_the_hash_follows_content_not_order():
    role = parse_role(ROLE, "here")
    assert parse_role(dict(reversed(ROLE.items())), "here").hash == role.hash
    assert role.edited(description="You grind corn.").hash != role.hash
    assert role.edited().hash == role.hash


def test_a_role_cannot_be_changed():
    role = parse_role(ROLE, "here")
    with pytest.raises(Exception, match="frozen"):
        role.name = "Baker"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"descripton": "x"}, "unknown key 'descripton'. Did you mean 'description'"),
        ({"id": "The Miller"}, "id: .*given: 'The Miller'"),
        ({"name": ""}, "name: "),
        ({"level": 0}, "level: .*greater than or equal to 1"),
        ({"traits": {"calm": "very"}}, "traits.calm"),
        ({"demonstrations": [{"user": "hi"}]}, r"demonstrations.0.reply: Field required"),
        ({"demonstrations": [{"user": "hi", "replay": "x"}]}, r"demonstrations\.0: unknown key 'replay'"),
    ],
)
def test_a_refused_role_names_place_and_field(change, message):
    with pytest.raises(RoleError, match=rf"file\.yaml: roles\[3\]: {message}"):
        parse_role(ROLE | change, "file.yaml: roles[3]")


def test_edits_are_validated():
    with pytest.raises(RoleError, match=r"role 'miller': unknown key 'stile'\. Did you mean 'style'"):
        parse_role(ROLE, "here").edited(stile="x")


def test_inventories_refuse_what_is_ambiguous():
    role = parse_role(ROLE, "here")
    with pytest.raises(RoleError, match="'miller' occurs more than once"):
        Inventory("mine", "1", (role, role))
    with pytest.raises(RoleError, match="holds no roles"):
        Inventory("mine", "1", ())
    with pytest.raises(RoleError, match=r"no role 'miler'\. Did you mean 'miller'"):
        Inventory("mine", "1", (role,))["miler"]


def test_select_filters_and_orders():
    core = load_inventory("core-v1")
    assert [role.id for role in core.select(["poet", "chef"])] == ["poet", "chef"]
    assert {role.level for role in core.select(levels=[4, 5])} == {4, 5}
    assert all("vivid" in role.tags for role in core.select(tags=["vivid"]))
    assert core.select(families=["assistants"]).hash != core.hash


def test_the_bundled_inventory_is_whole():
    core = load_inventory("core-v1")
    assert len(core) == 275
    for level in range(1, 6):
        assert len(core.select(levels=[level])) == 15
    ladders: dict[str, list[int]] = {}
    for role in core:
        assert len(role.instructions) == 5
        assert len(role.questions) >= 10
        assert len(role.demonstrations) >= 2
        assert role.style
        assert role.values
        assert role.knowledge
        if role.ladder:
            ladders.setdefault(role.ladder, []).append(role.level)
    assert len(ladders) == 10
    assert all(sorted(levels) == [1, 2, 3, 4, 5] for levels in ladders.values())


def test_the_bundled_questions_are_split():
    bank = load_questions("questions-v1")
    assert (len(bank), len(bank.split("evaluation")), len(bank.split("calibration"))) == (240, 228, 12)
    assert sum(question.micro for question in bank) >= 12


words = st.text(string.ascii_letters + " ,.:#'\"é—", min_size=1, max_size=20).map(str.strip).filter(bool)
ids = st.from_regex(r"[a-z0-9]{1,6}(-[a-z0-9]{1,4})?", fullmatch=True)
roles = st.builds(
    Role, id=ids, name=words, description=words, instructions=st.lists(words, max_size=3).map(tuple),
    values=st.lists(words, max_size=2).map(tuple), traits=st.dictionaries(words, st.floats(-5, 5), max_size=2),
    relations=st.dictionaries(ids, words, max_size=2), level=st.none() | st.integers(1, 9),
    demonstrations=st.lists(st.builds(Demonstration, user=words, reply=words), max_size=2).map(tuple),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.lists(roles, min_size=1, max_size=3, unique_by=lambda role: role.id),
    st.sampled_from([".yaml", ".json", ".jsonl", ".csv"]),
)
def test_any_role_survives_its_file(tmp_path_factory, some, suffix):
    inventory = Inventory("mine", "2", tuple(some))
    path = save_inventory(inventory, tmp_path_factory.mktemp("roles") / f"all{suffix}")
    loaded = load_inventory(path)
    assert loaded.roles == inventory.roles
    if suffix in (".yaml", ".json"):
        assert (loaded.name, loaded.version) == ("mine", "2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arc": (Phase(name="old", description="You are old."),)}, "has an arc"),
        ({"values": ("a | b",)}, "holds '|'"),
        ({"relations": {"x => y": "z"}}, "holds '=>'"),
    ],
)
def test_what_a_table_cannot_hold_is_refused(change, message, tmp_path):
    inventory = Inventory("mine", "1", (parse_role(ROLE, "here").edited(**change),))
    with pytest.raises(RoleError, match=message.replace("|", r"\|")):
        save_inventory(inventory, tmp_path / "all.csv")
    assert load_inventory(save_inventory(inventory, tmp_path / "all.yaml")).roles == inventory.roles


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", "roles:\n  - id: [", r"a\.yaml:3:1: not valid YAML"),
        ("a.yaml", "role:\n  - id: x\n", "expected the key 'roles', got 'role'"),
        ("a.yaml", "roles: 3\n", "expected a list of roles, got int"),
        ("a.yaml", "name: x\nroles: []\n", "holds no roles"),
        ("a.yaml", "roles:\n  - just text\n", r"roles\[0\]: a role must be a mapping"),
        ("a.txt", "", "expected one of"),
    ],
)
def test_a_bad_file_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        load_inventory(tmp_path / name)


def test_an_unknown_name_lists_what_is_bundled():
    with pytest.raises(RoleError, match=r"no bundled name \(bundled: .*core-v1"):
        load_inventory("core-v2")


def test_a_folder_is_read_in_order_of_names(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(f"roles:\n  - {{id: {name}, name: {name}, description: d}}\n")
    (tmp_path / "inventory.yaml").write_text('name: mine\nversion: "7"\n')
    inventory = load_inventory(tmp_path)
    assert [role.id for role in inventory] == ["a", "b"]
    assert (inventory.name, inventory.version) == ("mine", "7")


def test_a_bank_refuses_repeats(tmp_path):
    path = tmp_path / "q.yaml"
    path.write_text("questions:\n  - {id: a, text: Why?}\n  - {id: b, text: why?}\n")
    with pytest.raises(RoleError, match="b repeats a"):
        load_questions(path)
    path.write_text("questions:\n  - {id: a, text: Why?, split: train}\n")
    with pytest.raises(RoleError, match=r"questions\[0\] \(a\): split"):
        load_questions(path)
