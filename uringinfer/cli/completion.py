"""`uringinfer completion`: the script that makes a shell complete commands, options and paths."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from uringinfer.api import UsageError

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_URINGINFER_COMPLETE"
"""What click looks at to know that a shell asks; derived from the program's name."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    Examples:
      eval "$(uringinfer completion bash)"                        in ~/.bashrc
      eval "$(uringinfer completion zsh)"                         in ~/.zshrc
      uringinfer completion fish > ~/.config/fish/completions/uringinfer.fish
    """
    root = ctx.find_root()
    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"no completion for {shell}", hint=f"choose one of {', '.join(SHELLS)}")
    click.echo(completion(root.command, {}, "uringinfer", _VARIABLE).source())
