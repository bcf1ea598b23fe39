"""Print a script that completes commands and options in bash, zsh or fish."""

from __future__ import annotations

from argparse import Namespace

from webdataset.cli import terminal
from webdataset.cli.grammar import Parser
from webdataset.cli.running import parser_of
from webdataset.cli.table import COMMANDS

EXAMPLES = (
    ('eval "$(wl completion bash)"', "in ~/.bashrc; likewise for zsh"),
    ("wl completion fish > ~/.config/fish/completions/wl.fish", "for fish"),
)


def configure(parser: Parser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="which shell")


def run(options: Namespace) -> None:
    terminal.out(SCRIPTS[options.shell]())


def options_of(name: str) -> list[tuple[list[str], str]]:
    """Return the flags of each option of a command, with its help."""
    actions = parser_of(name)._actions
    return [(list(a.option_strings), _plain(a.help or "")) for a in actions if a.option_strings]


def bash() -> str:
    """Return the script for bash; words that are no options complete to files."""
    cases = "\n".join(f'    {name}) words="{_words(name)}" ;;' for name in COMMANDS)
    return f"""_wl() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=() ;;
  esac
}}
complete -o default -F _wl wl
"""


def zsh() -> str:
    """Return the script for zsh."""
    commands = "\n".join(f"    {_quoted(f'{name}:{command.help}')}" for name, command in COMMANDS.items())
    cases = "\n".join(f"    {name}) options=({_words(name)}) ;;" for name in COMMANDS)
    return f"""#compdef wl
_wl() {{
  local -a commands options
  commands=(
{commands}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case "$words[2]" in
{cases}
  esac
  if [[ "$PREFIX" == -* ]]; then compadd -- $options; else _files; fi
}}
compdef _wl wl
"""


def fish() -> str:
    """Return the script for fish: one line per option, with its help."""
    lines = []
    for name, command in COMMANDS.items():
        lines.append(f"complete -c wl -n __fish_use_subcommand -f -a {name} -d {_quoted(command.help)}")
        for flags, text in options_of(name):
            shown = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in flags)
            lines.append(f"complete -c wl -n '__fish_seen_subcommand_from {name}' {shown} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def _words(name: str) -> str:
    return " ".join(flag for flags, _ in options_of(name) for flag in flags)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _plain(text: str) -> str:
    return " ".join(text.replace("%%", "%").split())
