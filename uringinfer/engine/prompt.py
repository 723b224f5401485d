"""From a person's words to the ids that a model is fed."""

from __future__ import annotations

from pathlib import Path

from uringinfer.errors import UsageError
from uringinfer.text.chat import ChatTemplate, find_template
from uringinfer.text.tokenizer import Tokenizer


class Prompter:
    """The text side of one model: its tokenizer and its chat template, either of which may be missing.

    `notes` says what is missing. `template_file` takes the place of the checkpoint's own template.
    """

    def __init__(self, directory: Path, template_file: Path | None = None) -> None:
        self.directory = directory
        self.notes: list[str] = []
        self.tokenizer: Tokenizer | None = None
        self.template: ChatTemplate | None = None
        try:
            self.tokenizer = Tokenizer.open(directory)
        except UsageError as error:
            self.notes.append(str(error))
            return
        if template_file is not None or find_template(directory, self.tokenizer) is not None:
            self.template = ChatTemplate.open(directory, self.tokenizer, file=template_file)
        else:
            self.notes.append("this model has no chat template: prompts are taken as they are")

    def encode(self, prompt: str, *, raw: bool = False, goes_on: bool = False) -> list[int]:
        """The ids of `prompt` as one user's turn, or as it is if `raw` or if there is no template.

        `goes_on`: it does not begin a text, so the token that begins one is left out. Raises UsageError if
        the model has no tokenizer.
        """
        if self.tokenizer is None:
            raise UsageError(
                f"{self.directory} has no tokenizer, so text cannot be used",
                hint="give token numbers with --ids",
            )
        if raw or self.template is None:
            ids = self.tokenizer.encode(prompt)
        else:
            ids = self.template.encode([{"role": "user", "content": prompt}])
        begins = bool(ids) and ids[0] == self.tokenizer.bos_id
        return ids[1:] if goes_on and begins else ids
