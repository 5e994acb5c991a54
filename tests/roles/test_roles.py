import copy
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rolecraft.errors import RoleError, UserError
from rolecraft.roles import (
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
    with pytest.raises(ValidationError, match="frozen"):
        role.name = "Baker"
    for change in (
        lambda: role.traits.__setitem__("calm", 1),
        lambda: role.traits.__delitem__("calm"),
        lambda: role.traits.update(calm=1),
        lambda: role.traits.setdefault("bold", 1),
        lambda: role.traits.pop("calm"),
        lambda: role.relations.clear(),
    ):
        with pytest.raises(TypeError, match="frozen; make an edited copy"):
            change()
    assert role.values == ("bread",)
    assert role.hash == parse_role(ROLE, "here").hash


def test_roles_are_keys_and_travel_to_workers():
    role = parse_role(ROLE, "here")
    assert {role: 1}[parse_role(dict(reversed(ROLE.items())), "here")] == 1
    for copied in (pickle.loads(pickle.dumps(role)), copy.deepcopy(role)):
        assert copied == role
        with pytest.raises(TypeError, match="frozen"):
            copied.traits["calm"] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"descripton": "x"}, "unknown key 'descripton'. Did you mean 'description'"),
        ({"id": "The Miller"}, "id: .*given: 'The Miller'"),
        ({"name": ""}, "name: "),
        ({"level": 0}, "level: .*greater than or equal to 1"),
        ({"traits": {"calm": "very"}}, "traits.calm"),
        ({"traits": {"calm": float("nan")}}, "traits.calm: .*finite number"),
        ({"relations": {"The Baker": "friend"}}, "relations.The Baker"),
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


def test_membership_goes_by_id_or_role():
    core = load_inventory("core-v1")
    assert "pirate" in core
    assert core["pirate"] in core
    assert "pirat" not in core
    assert core["pirate"].edited(style="x") not in core


def test_select_filters_and_orders():
    core = load_inventory("core-v1")
    assert [role.id for role in core.select(["poet", "chef"])] == ["poet", "chef"]
    assert {role.level for role in core.select(levels=[4, 5])} == {4, 5}
    vivid = core.select(tags=["vivid"])
    assert 0 < len(vivid) < len(core)
    assert all("vivid" in role.tags for role in vivid)
    assert core.select(families=["assistants"]).hash != core.hash
    assert core.select().hash == core.hash


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"ids": ["poet", "cheff"]}, r"no role 'cheff'\. Did you mean 'chef'"),
        ({"ids": ["poet", "poet"]}, "'poet' occurs more than once"),
        ({"ids": []}, "holds no roles"),
        ({"families": ["profession"]}, r"families: no role .* has 'profession'\. Did you mean 'professions'\? Known: "),
        ({"levels": [6]}, r"levels: no role .* has 6\. Known: 1, 2, 3, 4, 5"),
        (
            {"families": ["assistants"], "tags": ["maritime"]},
            r"no role .* has all of tags \['maritime'\], families \['assistants'\]",
        ),
    ],
)
def test_a_selection_of_nothing_says_which_filter(filters, message):
    with pytest.raises(RoleError, match=message):
        load_inventory("core-v1").select(**filters)


def test_the_bundled_inventory_is_whole():
    core = load_inventory("core-v1")
    assert len(core) == 275
    for level in range(1, 6):
        assert len(core.select(levels=[level])) == 15
    assert len({role.name for role in core}) == 275
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


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
words = texts.map(str.strip).filter(bool)
ids = st.from_regex(r"[a-z0-9]{1,6}(-[a-z0-9]{1,4})?", fullmatch=True)
some = st.lists(words, max_size=2)
lists = ("instructions", "questions", "catchphrases", "values", "goals", "boundaries", "knowledge", "tags")
anything = st.fixed_dictionaries(
    {"id": ids, "name": words, "description": words},
    optional=dict.fromkeys(lists, some)
    | dict.fromkeys(("style", "family", "ladder"), texts)
    | {
        "level": st.none() | st.integers(1, 10**6),
        "traits": st.dictionaries(words, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
        "relations": st.dictionaries(ids, words, max_size=2),
        "demonstrations": st.lists(st.fixed_dictionaries({"user": words, "reply": words}), max_size=2),
        "arc": st.lists(st.fixed_dictionaries({"name": words, "description": words, "knowledge": some}), max_size=2),
    },
)


def valid(fields):
    """A role, or none where the texts were nothing but what counts as blank."""
    try:
        return parse_role(fields, "made up")
    except RoleError:
        return None


roles = anything.map(valid).filter(bool)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(roles, min_size=1, max_size=3, unique_by=lambda role: role.id),
    st.sampled_from([".yaml", ".json", ".jsonl", ".csv"]),
)
@example([Role(id="a", name="A", description="next\x85line\u2028and\u2029so on")], ".yaml")
@example([Role(id="a", name="A", description="next\x85line\u2028and\u2029so on")], ".jsonl")
@example([Role(id="a", name="A", description="b", values=("x,y", '"z"'), traits={"t": 0.1})], ".csv")
def test_any_role_survives_its_file(tmp_path_factory, some, suffix):
    inventory = Inventory("mine", "2", tuple(some))
    path = tmp_path_factory.mktemp("roles") / f"all{suffix}"
    refusal = ""
    try:
        save_inventory(inventory, path)
    except RoleError as error:
        refusal = str(error)
    if refusal:
        assert suffix == ".csv"
        assert "save as YAML or JSON" in refusal
        return
    loaded = load_inventory(path)
    assert loaded.roles == inventory.roles
    if suffix in (".yaml", ".json"):
        assert (loaded.name, loaded.version) == ("mine", "2")


def test_ours_survive_every_format(tmp_path):
    core = load_inventory("core-v1")
    for suffix in (".yaml", ".json", ".jsonl", ".csv"):
        assert load_inventory(save_inventory(core, tmp_path / f"core{suffix}")).hash == core.hash


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(RoleError, match=r"expected one of \.yaml, .*got '\.toml'"):
        save_inventory(load_inventory("core-v1"), tmp_path / "core.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arc": (Phase(name="old", description="You are old."),)}, "has an arc"),
        ({"values": ("a | b",)}, "holds '|'"),
        ({"traits": {"x => y": 1}}, "holds '=>'"),
        ({"demonstrations": ({"user": "a => b", "reply": "c"},)}, "holds '=>'"),
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
    with pytest.raises(RoleError, match=r"no bundled name.*Bundled: .*core-v1"):
        load_inventory("core-v2")


def test_a_folder_is_read_in_order_of_names(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(f"roles:\n  - {{id: {name}, name: {name}, description: d}}\n")
    (tmp_path / "inventory.yaml").write_text('name: mine\nversion: "7"\n')
    inventory = load_inventory(tmp_path)
    assert [role.id for role in inventory] == ["a", "b"]
    assert (inventory.name, inventory.version) == ("mine", "7")


def test_a_folder_may_hold_every_format(tmp_path):
    core = load_inventory("core-v1")
    for suffix, role_id in ((".csv", "chef"), (".json", "pirate"), (".jsonl", "poet"), (".yaml", "wolf")):
        save_inventory(core.select([role_id]), tmp_path / f"{role_id}{suffix}")
    assert load_inventory(tmp_path).roles == core.select(["chef", "pirate", "poet", "wolf"]).roles


def test_a_bank_refuses_repeats(tmp_path):
    path = tmp_path / "q.yaml"
    path.write_text("questions:\n  - {id: a, text: Why?}\n  - {id: b, text: why?}\n")
    with pytest.raises(RoleError, match="b repeats a"):
        load_questions(path)
    path.write_text("questions:\n  - {id: a, text: Why?, split: train}\n")
    with pytest.raises(RoleError, match=r"questions\[0\] \(a\): split"):
        load_questions(path)
