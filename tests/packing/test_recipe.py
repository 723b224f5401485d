import pytest

from uringinfer.errors import UsageError
from uringinfer.packing.recipe import Recipe, parse_rule

MATRIX = (64, 128)


@pytest.mark.parametrize(
    ("role", "shape", "kept", "expected"),
    [
        ("trunk", MATRIX, "bf16", "q4"),
        ("trunk", MATRIX, "q8", "q4"),
        ("trunk", (1, 128), "bf16", "bf16"),
        ("trunk", (64,), "f32", "f32"),
        ("exact", MATRIX, "bf16", "bf16"),
        ("expert", MATRIX, "bf16", "mxfp4"),
        ("table", MATRIX, "bf16", "q8"),
        ("table", MATRIX, "fp8", "fp8"),
        ("table", MATRIX, "q8_g32", "q8_g32"),
    ],
)
def test_matrices_change_and_the_rest_is_not_touched(role, shape, kept, expected):
    assert Recipe("q4", "mxfp4").choose("x", role, shape, kept) == expected


@pytest.mark.parametrize(
    ("trunk", "expected"),
    [("f16", "f16"), ("q8", "q8"), ("fp8", "q8"), ("mxfp4", "q8"), ("q4_g32", "q8"), ("keep", "bf16")],
)
def test_tables_never_go_below_eight_bits_nor_to_formats_without_single_rows(trunk, expected):
    assert Recipe(trunk).choose("lm_head", "table", MATRIX, "bf16") == expected


@pytest.mark.parametrize(("trunk", "expected"), [("vq3", "q8"), ("q4", "q4"), ("keep", "bf16")])
def test_what_is_multiplied_by_head_is_not_vector_quantised(trunk, expected):
    assert Recipe(trunk).choose("kv_b", "heads", MATRIX, "bf16") == expected


def test_by_default_everything_is_kept():
    for role in ("trunk", "table", "expert", "exact"):
        assert Recipe().choose("x", role, MATRIX, "fp8") == "fp8"


def test_the_last_rule_that_matches_the_whole_name_decides_for_whatever_it_names():
    recipe = Recipe(
        "q8", tensors=((r"layers\.\d+\..*", "mxfp4"), (r"layers\.0\..*", "keep"), ("norm", "bf16"))
    )
    assert recipe.choose("layers.3.up", "trunk", MATRIX, "bf16") == "mxfp4"
    assert recipe.choose("layers.3.router", "exact", MATRIX, "bf16") == "mxfp4"
    assert recipe.choose("layers.0.up", "trunk", MATRIX, "bf16") == "bf16"
    assert recipe.choose("norm", "exact", (64,), "f32") == "bf16"
    assert recipe.choose("the.norm", "exact", (64,), "f32") == "f32"


def test_a_table_of_eight_bits_already_is_only_converted_by_name_or_to_floats():
    named = Recipe("q8", tensors=(("lm_head", "q8"),))
    assert Recipe("q8").choose("lm_head", "table", MATRIX, "q8_g32") == "q8_g32"
    assert named.choose("lm_head", "table", MATRIX, "q8_g32") == "q8"
    assert Recipe("bf16").choose("lm_head", "table", MATRIX, "q8_g32") == "bf16"
    assert Recipe("q8").choose("lm_head", "table", MATRIX, "q4_g32") == "q8"


def test_a_rule_that_names_a_table_may_go_below_eight_bits():
    assert Recipe("q8", tensors=(("lm_head", "q4"),)).choose("lm_head", "table", MATRIX, "bf16") == "q4"


@pytest.mark.parametrize("shape", [(64,), (64, 1, 4), (64, 1), ()])
def test_a_rule_that_wants_a_vector_quantised_is_refused_by_name_and_shape(shape):
    with pytest.raises(
        UsageError, match=r"conv \[.*\] is no matrix, q8 cannot hold it; choose one of keep, bf16"
    ):
        Recipe(tensors=(("conv", "q8"),)).choose("conv", "exact", shape, "bf16")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"trunk": "q5"}, r"'q5' is no weight format; choose one of keep, bf16, .*mxfp4"),
        ({"trunk": "q4_k"}, r"'q4_k' is kept from files, not packed anew; choose one of keep, bf16, "),
        ({"experts": "Q4"}, r"'Q4' is no weight format"),
        ({"tensors": (("x", "int4"),)}, r"'int4' is no weight format"),
        ({"tensors": (("x[", "q4"),)}, r"'x\[' is no regular expression: unterminated"),
    ],
)
def test_what_does_not_exist_is_refused(recipe, message):
    with pytest.raises(UsageError, match=message):
        Recipe(**recipe)


def test_a_rule_that_names_nothing_is_refused():
    recipe = Recipe(tensors=(("up", "q8"), ("layers.9.up", "q8")))
    with pytest.raises(UsageError, match=r"no tensor is called 'layers\.9\.up'; names are like norm"):
        recipe.check_used(["up", "norm"])


def test_rules_are_cut_at_the_last_equals_sign():
    assert parse_rule("a=b.*=q4") == ("a=b.*", "q4")
    for text in ("q4", "=q4", ""):
        with pytest.raises(UsageError, match="names no tensors and their format"):
            parse_rule(text)


def test_tables_that_did_not_get_the_format_of_the_trunk_are_told():
    tables = {"embed_tokens": "q8", "lm_head": "q8"}
    (note,) = Recipe("mxfp4").table_notes(tables)
    assert note.startswith(
        "embed_tokens and lm_head: q8 instead of mxfp4, which has less than 8 bits; --tensor"
    )
    (note,) = Recipe("fp8").table_notes(tables)
    assert "instead of fp8, which has no single rows;" in note
    (note,) = Recipe("q4").table_notes({"lm_head": "q4_g32"}, {"lm_head"})
    assert note.startswith("lm_head: q4_g32 instead of q4, quantised already;")
    assert Recipe("q8").table_notes(tables) == Recipe().table_notes(tables) == ()
    assert Recipe("mxfp4", tensors=((".*", "q8"),)).table_notes(tables) == ()
