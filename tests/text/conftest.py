import pytest

from tests.text import tokenizer_files
from uringinfer.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory):
    """A byte-level tokenizer with chat markers, end tokens from generation_config.json."""
    return Tokenizer.open(
        tokenizer_files.write(
            tmp_path_factory.mktemp("byte_level"),
            tokenizer_files.byte_level(),
            tokenizer_config={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
            generation_config={"eos_token_id": [2, 0]},
        )
    )


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory):
    """A SentencePiece-style tokenizer that adds <s> in front."""
    return Tokenizer.open(
        tokenizer_files.write(
            tmp_path_factory.mktemp("sentencepiece"),
            tokenizer_files.sentencepiece_style(),
            tokenizer_config={"add_bos_token": True, "bos_token": {"content": "<s>"}, "eos_token": "</s>"},
        )
    )


@pytest.fixture(scope="session")
def chat_tokenizer(tmp_path_factory):
    """A byte-level tokenizer that knows the markup of every template in `chat_templates`, and Kimi K3's."""
    directory = tokenizer_files.write(
        tmp_path_factory.mktemp("chat"),
        tokenizer_files.with_kimi_k3_markup(),
        tokenizer_config={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
    )
    return Tokenizer.open(directory)
