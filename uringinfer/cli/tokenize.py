"""`uringinfer tokenize`: text to token numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli.inputs import read_text


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("dash", metavar="[-]", required=False)
@click.option("-p", "--prompt", metavar="TEXT", help="The text.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Read the text from a file (- is stdin).")
@click.option(
    "--request",
    type=click.Path(path_type=Path),
    help="A JSON file (- is stdin) with a request as OpenAI's chat completions take it: what would be fed.",
)
@click.option("--chat", is_flag=True, help="Put the text into the model's chat format, as a user's message.")
@click.option(
    "--chat-template", type=click.Path(path_type=Path), help="A Jinja file instead of the model's own."
)
@click.option("--control", is_flag=True, help="Let the text's control tokens count, such as <|im_end|>.")
@click.option("--bos", is_flag=True, help="Put the beginning token in front.  [default: as the model]")
@click.option("--no-bos", is_flag=True, help="Leave the beginning token out.")
@click.option(
    "--ids", "only_ids", is_flag=True, help="Print 1,2,3 on one line, as `generate --ids` takes it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: Path, dash: str | None, **options: Any) -> None:
    """Show the tokens of a text: one line each, with its number and what it stands for.

    MODEL is a container, a checkpoint directory or a GGUF file. Control tokens in the text are ordinary
    characters unless --control is given: that is how `generate` reads what a user wrote.

    \b
    Examples:
      uringinfer tokenize model.uring -p "The capital of France"
      uringinfer tokenize model.uring --chat -p "Who are you?"
      uringinfer tokenize model.uring --request request.json --json
      uringinfer tokenize model.uring --ids - < prompt.txt
    """
    if options["bos"] and options["no_bos"]:
        raise UsageError("--bos and --no-bos exclude each other", hint="leave one out")
    what = "the text" if options["request"] is None else "the request"
    text = read_text(options["prompt"], options["file"] or options["request"], dash, what=what)
    if text is None:
        raise UsageError("no text was given", hint="give one of -p TEXT, -f FILE, or - to read stdin")
    if options["request"] is not None:
        _refuse_beside_request(options)
    prompter = api.Prompter.of_model(model, options["chat_template"])
    tokenizer = prompter.need_tokenizer()
    for note in prompter.notes:
        click.echo(f"note: {note}", err=True)
    more: dict[str, Any] = {}
    if options["request"] is None:
        ids = _encode(prompter, text, options)
    else:
        ids, segments = prompter.encode_request(_parsed(text, options["request"]))
        more = {"text": "".join(segment.text for segment in segments), "segments": segments}
    if options["as_json"]:
        tokens = [_describe(tokenizer, token_id) for token_id in ids]
        click.echo(json.dumps({"count": len(ids), "ids": ids, "tokens": tokens, **more}, ensure_ascii=False))
    elif options["only_ids"]:
        click.echo(",".join(map(str, ids)))
    else:
        width = len(str(tokenizer.vocab_size))
        for token_id in ids:
            data = tokenizer.token_bytes(token_id)
            click.echo(f"{token_id:>{width}}  {_show(data)}")


def _refuse_beside_request(options: dict[str, Any]) -> None:
    if options["file"] is not None:
        raise UsageError("both a text and a request were given", hint="leave one out")
    if options["chat"] or options["control"] or options["bos"] or options["no_bos"]:
        raise UsageError("--request excludes --chat, --control and --bos", hint="the chat format decides")


def _parsed(text: str, file: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON ({error})") from None


def _encode(prompter: api.Prompter, text: str, options: dict[str, Any]) -> list[int]:
    if not options["chat"] and options["chat_template"] is None:
        tokenizer = prompter.need_tokenizer()
        add_bos = options["bos"] if options["bos"] or options["no_bos"] else None
        return tokenizer.encode(text, allow_control=options["control"], add_bos=add_bos)
    if options["control"] or options["bos"] or options["no_bos"]:
        raise UsageError("--chat excludes --control and --bos", hint="the template decides on both")
    prompter.need_template()
    return prompter.encode(text)


def _describe(tokenizer: api.Tokenizer, token_id: int) -> dict[str, Any]:
    """A token for JSON: its text, or null where its bytes are only a part of a character."""
    data = tokenizer.token_bytes(token_id)
    try:
        text: str | None = data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    added = tokenizer.added_token(token_id)
    return {
        "id": token_id,
        "text": text,
        "bytes": data.hex(),
        "control": added is not None and added.is_control,
    }


def _show(data: bytes) -> str:
    """The bytes as a Python literal: readable where they are whole characters."""
    try:
        return repr(data.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(data)
