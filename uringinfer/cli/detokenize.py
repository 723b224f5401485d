"""`uringinfer detokenize`: token numbers to text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli.inputs import read_text


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("ids", nargs=-1)
@click.option("--no-special", is_flag=True, help="Leave special tokens out, as `generate` does.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: Path, ids: tuple[str, ...], no_special: bool, as_json: bool) -> None:
    """Show the text of token numbers.

    MODEL is a container, a checkpoint directory or a GGUF file. IDS are numbers, separated by commas or
    spaces; - reads them from stdin. Bytes that are no whole character show as U+FFFD.

    \b
    Examples:
      uringinfer detokenize model.uring 504,3575,282,4649
      uringinfer tokenize m.uring --ids -p "a" | uringinfer detokenize m.uring -
    """
    if not ids:
        raise UsageError("no token numbers were given", hint="give 1,2,3, or - to read stdin")
    given = read_text(None, None, "-", what="the numbers") if ids == ("-",) else " ".join(ids)
    numbers = _numbers(given or "")
    text = api.Prompter.of_model(model).need_tokenizer().decode(numbers, show_special=not no_special)
    if as_json:
        click.echo(json.dumps({"count": len(numbers), "ids": numbers, "text": text}, ensure_ascii=False))
    else:
        click.echo(text)


def _numbers(text: str) -> list[int]:
    words = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    wrong = next((word for word in words if not word.isdecimal()), None)
    if wrong is not None:
        raise UsageError(f"'{wrong}' is no token number", hint="give numbers such as 1,2,3")
    return [int(word) for word in words]
