"""Which chat format a model speaks: its template, or one of this package's own."""

from __future__ import annotations

from pathlib import Path

from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.text import kimi_k2, kimi_k3
from uringinfer.text.chat import ChatTemplate
from uringinfer.text.files import read_utf8
from uringinfer.text.kimi_k3_replies import has_markers
from uringinfer.text.rendering import Renderer
from uringinfer.text.settings import read_json
from uringinfer.text.tokenizer import Tokenizer


def find_renderer(
    directory: Path | str, tokenizer: Tokenizer, *, file: Path | str | None = None
) -> Renderer | None:
    """The chat format of the checkpoint or container in `directory`; None if it has none.

    The tokens that end a turn in it end a generation too, beside those that the tokenizer's files name.
    `file` is a template to use instead of the model's own. Nothing is compiled before it is needed, except
    `file`, which is what was asked for: raises UsageError if it cannot be read or is no template.
    """
    renderer = _find_renderer(Path(directory), tokenizer, None if file is None else Path(file))
    if renderer is not None:
        tokenizer.also_ends_at(renderer.turn_ends)
    return renderer


def _find_renderer(directory: Path, tokenizer: Tokenizer, file: Path | None) -> Renderer | None:
    if file is not None:
        return _asked_for(file, tokenizer)
    # Kimi K3 was released without a template: what others wrote into its files is an approximation
    if has_markers(tokenizer) and not (directory / "chat_template.jinja").exists():
        return kimi_k3.KimiK3Renderer(tokenizer)
    found = find_template(directory)
    if found is not None:
        return ChatTemplate(found[0], tokenizer, name=found[1])
    if all(tokenizer.id_of(marker) is not None for marker in kimi_k2.MARKERS):
        return ChatTemplate(kimi_k2.TEMPLATE, tokenizer, name=kimi_k2.NAME)
    return None


def find_template(directory: Path) -> tuple[str, str] | None:
    """The source of the chat template in `directory` and where it comes from; None if there is none.

    chat_template.jinja, chat_template.json, then tokenizer_config.json (where a list names several, the one
    called "default").
    """
    path = directory / "chat_template.jinja"
    if path.exists():
        return read_utf8(path), str(path)
    for name in ("chat_template.json", "tokenizer_config.json"):
        value = read_json(directory / name).get("chat_template")
        if isinstance(value, list):
            by_name = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
            value = by_name.get("default")
        if isinstance(value, str):
            return value, f"the chat template of {directory / name}"
    return None


def _asked_for(file: Path, tokenizer: Tokenizer) -> ChatTemplate:
    try:
        template = ChatTemplate(read_utf8(file), tokenizer, name=str(file))
        template.check_syntax()
    except FileNotFoundError as error:
        raise UsageError(f"cannot read the chat template {file}: {error.strerror}") from None
    except (EnvironmentError_, IntegrityError) as error:
        raise UsageError(error.message, hint=error.hint) from error
    return template
