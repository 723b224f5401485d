"""Text to token ids and back, with control tokens kept out of the hands of whoever wrote the text.

`Tokenizer` is the only place where a control token's id comes out of text, and only where the caller says
that the text may contain them (`allow_control`). Everywhere else "<|im_end|>" is ten harmless characters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from uringinfer.errors import UsageError
from uringinfer.text import json_vocabulary, tiktoken_vocabulary
from uringinfer.text.json_vocabulary import JsonVocabulary
from uringinfer.text.rendering import Segment
from uringinfer.text.settings import CHANNEL, MESSAGE_END, TokenSettings, read_token_settings
from uringinfer.text.tiktoken_vocabulary import TiktokenVocabulary
from uringinfer.text.vocabulary import AddedToken, AddedTokenFinder, Vocabulary

_CHECKED = 1 << 16
"""Characters that are looked at together for what is not Unicode."""


class Tokenizer:
    """A vocabulary together with what the checkpoint says about its special tokens.

    `bos_id` begins a text, if the model has such a token, and `adds_bos` says
    whether `encode` puts it in front by itself; `vocab_size` is one more than the largest id.
    """

    def __init__(self, vocabulary: Vocabulary, settings: TokenSettings) -> None:
        self._vocabulary = vocabulary
        self._by_id = {token.id: token for token in vocabulary.added}
        self._by_content = {token.content: token.id for token in vocabulary.added}
        self._every_added = AddedTokenFinder(vocabulary.added)
        literal = [token for token in vocabulary.added if not token.normalized]
        self._literal_added = AddedTokenFinder(literal)
        self._ordinary_added = AddedTokenFinder([token for token in literal if not token.is_control])
        self.vocab_size = vocabulary.size
        self.control_tokens: tuple[AddedToken, ...] = tuple(t for t in vocabulary.added if t.is_control)
        self.special_ids = frozenset(token.id for token in vocabulary.added if token.special)
        """Tokens without text of their own: decoding for a person leaves them out."""
        self._named_ends = frozenset(self._ids_of(settings.eos))
        self._more_ends: Callable[[], frozenset[int]] | None = None
        self.bos_id = next(self._ids_of([settings.bos] if settings.bos is not None else []), None)
        if settings.add_bos is None:
            self.adds_bos = self.bos_id is not None and vocabulary.first_id == self.bos_id
        else:
            self.adds_bos = settings.add_bos and self.bos_id is not None
        self.special_texts = settings.texts
        """The special tokens that chat templates may name: "bos_token" -> "<s>"."""
        self.drops_first_space = vocabulary.drops_first_space

    @functools.cached_property
    def eos_ids(self) -> frozenset[int]:
        """The tokens that end a generation; where replies have channels, a message's end does not."""
        ends = self._named_ends | (frozenset() if self._more_ends is None else self._more_ends())
        if CHANNEL in self._by_content and len(ends) > 1:
            ends -= {self._by_content.get(MESSAGE_END)}
        return ends

    def also_ends_at(self, turn_ends: Callable[[], frozenset[int]]) -> None:
        """Has the tokens that `turn_ends` finds end a generation too. It is asked once, when that matters."""
        self._more_ends = turn_ends
        self.__dict__.pop("eos_ids", None)

    @classmethod
    def open(cls, directory: Path | str) -> Tokenizer:
        """Opens the tokenizer of a checkpoint or container: tokenizer.json, else tiktoken.model.

        Raises UsageError if `directory` has neither, IntegrityError for damaged files, UnsupportedModelError
        for a tokenizer of an unknown kind, EnvironmentError_ if a file may not be read.
        """
        directory = Path(directory)
        settings = read_token_settings(directory)
        json_path = directory / json_vocabulary.FILE_NAME
        tiktoken_path = directory / tiktoken_vocabulary.FILE_NAME
        vocabulary: Vocabulary
        if json_path.exists():
            vocabulary = JsonVocabulary.open(json_path, settings.declared, settings.special)
        elif tiktoken_path.exists():
            vocabulary = TiktokenVocabulary.open(tiktoken_path, settings.declared)
        else:
            raise UsageError(
                f"{directory} has no tokenizer ({json_path.name} or {tiktoken_path.name})",
                hint="put the file there, or give token numbers with --ids",
            )
        return cls(vocabulary, settings)

    def encode(self, text: str, *, allow_control: bool = False, add_bos: bool | None = None) -> list[int]:
        """Ids of `text`. Control tokens in it count only if `allow_control`.

        `add_bos` None follows the checkpoint.
        Raises UsageError if `text` is not valid Unicode or if a beginning is asked of a model that has none.
        """
        self._check_unicode(text)
        ids = self._beginning(self.adds_bos if add_bos is None else add_bos)
        at_start = True
        if not allow_control:
            return ids + self._encode_ordinary(text, at_start)
        for piece in self._literal_added.split(text):
            if isinstance(piece, AddedToken):
                ids.append(piece.id)
            else:
                ids += self._vocabulary.encode(piece, at_start=at_start, allow_control=True)
            at_start = False
        return ids

    def encode_segments(self, segments: Iterable[Segment]) -> list[int]:
        """Ids of a rendered prompt: control tokens count in markup alone; each segment is encoded alone.

        Nothing is put in front: the segments are the whole prompt. Raises UsageError as `encode` does.
        """
        ids: list[int] = []
        for text, is_markup in segments:
            self._check_unicode(text)
            for piece in self._every_added.split(text) if is_markup else (text,):
                if isinstance(piece, AddedToken):
                    ids.append(piece.id)
                else:
                    ids += self._encode_ordinary(piece, not ids)
        return ids

    def split_markup(self, text: str, guard: str) -> list[Segment]:
        """A template's output as segments: the control tokens that it wrote itself, and the text between.

        `guard` is a character that holds apart what is not the template's (see `chat_guard`); it is dropped.
        A control token that takes the white space around it has that in its segment.
        """
        segments: list[Segment] = []
        position = 0
        for token, start, stop in self._every_added.find(text):
            if not token.is_control:
                continue
            if start > position:
                segments.append(Segment(text[position:start].replace(guard, ""), False))
            segments.append(Segment(text[start:stop].replace(guard, ""), True))
            position = stop
        if position < len(text):
            segments.append(Segment(text[position:].replace(guard, ""), False))
        return [segment for segment in segments if segment.text]

    @staticmethod
    def _check_unicode(text: str) -> None:
        if text.isascii():
            return
        for start in range(0, len(text), _CHECKED):  # a copy of the whole would be as large as the text
            try:
                text[start : start + _CHECKED].encode()
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"the text is not valid Unicode (lone surrogate at character {start + error.start})",
                    hint="give it as UTF-8",
                ) from error

    def decode(self, ids: Iterable[int], *, show_special: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD. Special tokens only if `show_special`.

        Raises UsageError for a negative id or one outside the vocabulary.
        """
        hidden = frozenset() if show_special else self.special_ids
        data = b"".join(self.token_bytes(token_id) for token_id in ids if token_id not in hidden)
        if self.drops_first_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, not always whole characters; b"" for an unused id.

        Raises UsageError for an id outside the vocabulary.
        """
        if not 0 <= token_id < self.vocab_size:
            raise UsageError(f"token {token_id} is outside the vocabulary of {self.vocab_size} tokens")
        return self._vocabulary.token_bytes(token_id)

    def added_token(self, token_id: int) -> AddedToken | None:
        """The added token with this id, if it is one."""
        return self._by_id.get(token_id)

    def id_of(self, content: str) -> int | None:
        """The id of the added token with this text, if there is one."""
        return self._by_content.get(content)

    def encode_parts(self, text: str, *, at_start: bool = True) -> Iterator[list[int]]:
        """Ids of a text without control tokens, part by part: memory does not grow with the text. Nothing is
        put in front. Raises UsageError if `text` is not valid Unicode."""
        self._check_unicode(text)
        for piece in self._ordinary_added.split(text):
            if isinstance(piece, AddedToken):
                yield [piece.id]
            else:
                for number, part in enumerate(self._vocabulary.parts(piece)):
                    yield (
                        self._vocabulary.encode_inside(part)
                        if number
                        else self._vocabulary.encode(part, at_start=at_start)
                    )
            at_start = False

    def _encode_ordinary(self, text: str, at_start: bool) -> list[int]:
        return [token for part in self.encode_parts(text, at_start=at_start) for token in part]

    def _beginning(self, wanted: bool) -> list[int]:
        if not wanted:
            return []
        if self.bos_id is None:
            raise UsageError("this model has no token that begins a text", hint="leave the beginning out")
        return [self.bos_id]

    def _ids_of(self, tokens: Iterable[str | int]) -> Iterator[int]:
        """The ids of settings' tokens; a name that the vocabulary lacks is passed over, as an id is kept."""
        for token in tokens:
            if isinstance(token, int):
                yield token
            elif token in self._by_content:
                yield self._by_content[token]
