"""From a person's words to the ids that a model is fed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from uringinfer.errors import UsageError
from uringinfer.packing.sources import open_source
from uringinfer.text.formats import find_renderer
from uringinfer.text.rendering import ChatRequest, Renderer
from uringinfer.text.tokenizer import Tokenizer

_NO_TEMPLATE = "this model has no chat template: prompts are taken as they are"


class Prompter:
    """The text side of one model: its tokenizer and its chat template, either of which may be missing.

    `notes` says what is missing, a template only once text was to be put into one. `template_file` takes
    the place of the checkpoint's own template.
    """

    def __init__(self, directory: Path, template_file: Path | None = None) -> None:
        self.directory = directory
        self.notes: list[str] = []
        self.tokenizer: Tokenizer | None = None
        self.template: Renderer | None = None
        try:
            self.tokenizer = Tokenizer.open(directory)
        except UsageError as error:
            self.notes.append(str(error))
            return
        self.template = find_renderer(directory, self.tokenizer, file=template_file)

    @classmethod
    def of_model(cls, path: Path, template_file: Path | None = None) -> Prompter:
        """The text side of a container, a checkpoint directory or a GGUF file, which is not packed for that.

        Raises UsageError if there is nothing at `path`, and what opening a GGUF file raises.
        """
        if not path.exists():
            raise UsageError(f"{path} does not exist", hint="give a container, a checkpoint or a GGUF file")
        if path.is_dir():
            return cls(path, template_file)
        source = open_source(path)
        try:
            with tempfile.TemporaryDirectory() as scratch:
                for name, data in source.auxiliary_files().items():
                    (Path(scratch) / name).write_bytes(data)
                prompter = cls(Path(scratch), template_file)
        finally:
            source.close()
        prompter.directory = path
        return prompter

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer; raises UsageError if the model has none."""
        if self.tokenizer is None:
            raise UsageError(
                f"{self.directory} has no tokenizer, so text cannot be used",
                hint="give token numbers with --ids",
            )
        return self.tokenizer

    def need_template(self) -> Renderer:
        """The chat template; raises UsageError if the model has none."""
        if self.template is None:
            raise UsageError(
                f"{self.directory} has no chat template", hint="give a template with --chat-template"
            )
        return self.template

    def encode(self, prompt: str, *, raw: bool = False, goes_on: bool = False) -> list[int]:
        """The ids of `prompt` as one user's turn, or as it is if `raw` or if there is no template.

        `goes_on`: it does not begin a text, so the token that begins one is left out. Raises UsageError if
        the model has no tokenizer.
        """
        tokenizer = self.need_tokenizer()
        if not raw and self.template is None and _NO_TEMPLATE not in self.notes:
            self.notes.append(_NO_TEMPLATE)
        if raw or self.template is None:
            ids = tokenizer.encode(prompt)
        else:
            ids = self.template.encode(ChatRequest([{"role": "user", "content": prompt}]))
        begins = bool(ids) and ids[0] == tokenizer.bos_id
        return ids[1:] if goes_on and begins else ids
