"""Errors of the library name settings; the command line adds their options."""

import pytest

from cefito.cli import build_app, with_option
from cefito.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "setting", "option"),
    [
        ("plan RUN", "budget_gflop", "--budget"),
        ("plan RUN", "method", "--search"),
        ("plan RUN", "from_step", "--from-step"),
        ("plan RUN", "task", "--task"),
        ("evaluate RUN", "task", "--oracle-task"),
        ("evaluate RUN", "starts", "--starts"),
        ("train DATA", "method", "--method"),
        ("train DATA", "folder", "--out"),
        ("train DATA", "dataset", ""),
        ("train DATA", "training.optimiser.epochs", "--set training.optimiser.epochs=…"),
        ("train DATA --set nonsense=3", "nonsense", "--set nonsense=…"),
        ("train DATA --set=nonsense=3", "nonsense", "--set nonsense=…"),
        ("train DATA", "nonsense", ""),
        ("data prepare custom A B", "beyond", "--beyond"),
        ("quickstart", "folder", "--out"),
        ("plan RUN", "", ""),
    ],
)
def test_the_option_of_a_setting(command, setting, option):
    message = with_option(ConfigError("wrong.", setting=setting), build_app(), command.split())
    assert message == (f"wrong. ({option})" if option else "wrong.")
