import json

import pytest
import tokenizer_files

from uringinfer.engine.prompt import Prompter
from uringinfer.errors import IntegrityError, UnsupportedModelError, UsageError


def test_a_model_without_a_tokenizer_says_so_once_text_is_wanted(tmp_path):
    prompter = Prompter(tmp_path)
    assert "has no tokenizer" in prompter.notes[0]
    assert prompter.prompt_ids([1, 2], {})[0] == [1, 2]
    with pytest.raises(UsageError, match="--ids"):
        prompter.prompt_ids("text", {})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, UnsupportedModelError),
        ({"model": {"type": "BPE"}}, IntegrityError),
    ],
)
def test_a_tokenizer_that_cannot_be_used_leaves_token_numbers_alone(tmp_path, change, error):
    document = tokenizer_files.byte_level() | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    prompter = Prompter(tmp_path)
    assert prompter.tokenizer is None
    assert len(prompter.notes) == 1
    assert prompter.prompt_ids([1, 2], {})[0] == [1, 2]
    with pytest.raises(error):
        prompter.prompt_ids("text", {})


def test_a_picture_is_refused_where_a_reply_is_wanted(tmp_path):
    document = tokenizer_files.with_kimi_k3_markup()
    prompter = Prompter(tokenizer_files.write(tmp_path, document))
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(UsageError, match="message 1 holds a part of type 'image_url'; only text"):
        prompter.prompt_ids([{"role": "user", "content": parts}], {})
