"""`tether completion`: what a shell needs to complete our words."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_TETHER_COMPLETE"


@click.command(name="completion", short_help="Let your shell complete commands and ids.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, *, shell: str) -> int:
    """Print the script that makes your shell complete commands, options, process ids and names.

    \b
    Install it for good:
      bash   tether completion bash > ~/.local/share/bash-completion/completions/tether
             (or add to ~/.bashrc:  eval "$(tether completion bash)")
      zsh    add to ~/.zshrc, behind compinit:  eval "$(tether completion zsh)"
      fish   tether completion fish > ~/.config/fish/completions/tether.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None, f"click knows no {shell}"
    root = context.find_root()
    script = completion(root.command, {}, "tether", _VARIABLE)
    # What `source` adds to this is a look at the bash in PATH, which need not be the one that will read it.
    click.echo(script.source_template % script.source_vars())
    return 0
