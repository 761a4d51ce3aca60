"""A sample of the odd inputs, and tests of their judge."""

import os
import sys

import pytest
from bad_cases import all_cases
from bad_inputs import GOOD, Case, make_world, run_case

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="inputs run in forked processes"),
]
EVERY = 160


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("bad") / "world")


def test_names_are_unique():
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names) >= 2000


@pytest.mark.parametrize("case", all_cases()[7::EVERY], ids=lambda case: ascii(case.name)[:60])
def test_sample(case, world, tmp_path_factory):
    outcome = run_case(case, world, world.root.parent / tmp_path_factory.mktemp("case").name)
    assert outcome.kind in GOOD, f"{outcome.kind}, exit code {outcome.code}: {outcome.said[-500:]}"


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("raise KeyError('x')", "traceback"),
        ("import time; time.sleep(60)", "hang"),
        ("sys.stderr.write('error: a\\nerror: b\\n'); code = 2", "not one line"),
        ("sys.stderr.write('error: \\x1b[31m\\n'); code = 2", "control characters"),
        ("sys.stderr.write('error: unexpected KeyError\\n'); code = 1", "unexpected"),
        ("open('left', 'w').close(); sys.stderr.write('error: a\\n'); code = 2", "left something"),
        ("code = 0", "silent success"),
        ("sys.stderr.write('error: a\\n'); code = 2", "refused"),
        ("os.kill(os.getpid(), 9)", "killed"),
    ],
)
def test_the_judge(program, kind, world, tmp_path_factory, monkeypatch):
    def main(argv):
        values = {"sys": sys, "os": os, "code": 0}
        exec(program, values)
        return values["code"]

    monkeypatch.setattr("cefito.cli.main", main)
    place = world.root.parent / tmp_path_factory.mktemp("case").name
    assert run_case(Case("x", ()), world, place, limit=1.0).kind == kind
