from hypothesis import example, given, settings
from hypothesis import strategies as st

from uringinfer.text.detokenizer import StreamingDetokenizer


def id_of_byte(tokenizer, byte):
    return next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == bytes([byte]))


def stream(tokenizer, ids, **options):
    detokenizer = StreamingDetokenizer(tokenizer, **options)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()]


@settings(max_examples=150)
@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=30), st.booleans())
def test_streamed_text_is_the_decoding_of_all_ids(byte_level, sentencepiece, places, show_special):
    for tokenizer in (byte_level, sentencepiece):
        ids = [int(place * tokenizer.vocab_size) for place in places]
        pieces = stream(tokenizer, ids, show_special=show_special)
        assert "".join(pieces) == tokenizer.decode(ids, show_special=show_special)


@settings(max_examples=150)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
@example(" a")
@example("🙂🙃東京")
def test_text_arrives_whole_and_never_with_half_a_character(byte_level, sentencepiece, text):
    for tokenizer in (byte_level, sentencepiece):
        pieces = stream(tokenizer, tokenizer.encode(text, add_bos=False))
        if "▁" not in text or tokenizer is byte_level:
            assert "".join(pieces) == text
        if "\ufffd" not in text:
            assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_spread_over_byte_tokens_appears_with_its_last_byte(sentencepiece):
    ids = [id_of_byte(sentencepiece, byte) for byte in "🙃".encode()]
    assert stream(sentencepiece, ids) == ["", "", "", "🙃", ""]


def test_a_character_that_is_never_completed_becomes_one_replacement_at_the_end(byte_level):
    assert stream(byte_level, [id_of_byte(byte_level, 0xF0)]) == ["", "\ufffd"]


def test_first_space_is_dropped_only_where_no_text_stands_before(sentencepiece):
    ids = sentencepiece.encode("dog", add_bos=False)
    assert "".join(stream(sentencepiece, ids)) == "dog"
    assert "".join(stream(sentencepiece, ids, continues_text=True)) == " dog"


def test_a_special_token_in_front_does_not_use_up_the_first_space(sentencepiece):
    ids = sentencepiece.encode("dog", add_bos=True)
    assert "".join(stream(sentencepiece, ids)) == "dog"


def test_ids_beyond_the_vocabulary_have_no_text(byte_level):
    assert stream(byte_level, [byte_level.vocab_size + 5]) == ["", ""]
