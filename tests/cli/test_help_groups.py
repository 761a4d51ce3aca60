"""Help is in groups, with what people need first at the top."""

import re

from cefito.cli import COMMANDS, GROUPS, main


def titles(text):
    return re.findall(r"^╭─ (.+?) ─", text, re.MULTILINE)


def test_every_command_is_in_one_group(capsys):
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert titles(shown) == [*GROUPS, "Other"]
    assert shown.index("│ data ") < shown.index("│ train ") < shown.index("│ plan ")
