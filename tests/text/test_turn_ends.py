"""Which tokens end a reply: those that the files name, and those that the chat format writes behind one."""

import pytest

from tests.text import chat_templates, tokenizer_files
from uringinfer.text.formats import find_renderer
from uringinfer.text.tokenizer import Tokenizer


def ends(directory, document, template, **settings):
    """The texts of the tokens that end a generation."""
    tokenizer = Tokenizer.open(tokenizer_files.write(directory, document, **settings))
    (directory / "own.jinja").write_text(template)
    find_renderer(directory, tokenizer, file=directory / "own.jinja")
    return {tokenizer.added_token(token_id).content for token_id in tokenizer.eos_ids}


ONLY_ENDOFTEXT = {"generation_config": {"eos_token_id": 0}}


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("chatml", "<|im_end|>"),
        ("headers", "<|eot_id|>"),
        ("role_is_markup", "<|end|>"),
        ("thinking", "<|im_end|>"),
    ],
)
def test_what_a_template_writes_behind_an_answer_ends_one(tmp_path, name, end):
    document = tokenizer_files.with_chat_markup()
    assert ends(tmp_path, document, chat_templates.ALL[name], **ONLY_ENDOFTEXT) == {"<|endoftext|>", end}


def test_where_a_template_ends_no_answer_the_next_turns_beginning_does(tmp_path):
    template = "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
    found = ends(tmp_path, tokenizer_files.with_chat_markup(), template, **ONLY_ENDOFTEXT)
    assert found == {"<|endoftext|>", "<|user|>"}


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }} bye <|im_end|>{% endfor %}",
        "{{ raise_exception('no') }}",
        "{% if %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_that_does_not_show_its_end_changes_nothing(tmp_path, template):
    directory = tokenizer_files.write(tmp_path, tokenizer_files.byte_level(), **ONLY_ENDOFTEXT)
    (directory / "chat_template.jinja").write_text(template)
    tokenizer = Tokenizer.open(directory)
    find_renderer(directory, tokenizer)
    assert tokenizer.eos_ids == {0}


def test_the_end_of_one_of_several_messages_does_not_end_a_reply(tmp_path):
    document = tokenizer_files.with_chat_markup()
    number = 1 + max(entry["id"] for entry in document["added_tokens"])
    for content in ("<|channel|>", "<|return|>"):
        document["added_tokens"].append({**document["added_tokens"][0], "id": number, "content": content})
        number += 1
    template = (
        "{% for m in messages %}<|channel|>{{ m.content }}"
        "{{ '<|return|>' if loop.last else '<|end|>' }}{% endfor %}"
    )
    assert ends(tmp_path, document, template) >= {"<|return|>"}
    assert "<|end|>" not in ends(tmp_path, document, template)


def test_nothing_is_rendered_before_the_ends_are_asked_for(tmp_path):
    directory = tokenizer_files.write(tmp_path, tokenizer_files.byte_level(), **ONLY_ENDOFTEXT)
    (directory / "chat_template.jinja").write_text(chat_templates.CHATML)
    tokenizer = Tokenizer.open(directory)
    renderer = find_renderer(directory, tokenizer)
    assert "_template" not in vars(renderer)
    assert tokenizer.eos_ids == {0, 2}
    assert "_template" in vars(renderer)
