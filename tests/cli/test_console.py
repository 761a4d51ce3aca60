import signal
import sys

import pytest

from cefito.cli import console

pytestmark = pytest.mark.usefixtures("default_handler")


def test_the_first_interrupt_asks_and_the_second_interrupts(capfd):
    with console.stoppable("stopping") as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert capfd.readouterr().err == "\nstopping\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_old_handler_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), console.stoppable("stopping") as stop:
        raise ZeroDivisionError
    assert not stop()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_the_program_as_a_shell_finds_it(tmp_path, monkeypatch):
    called = tmp_path / "cefito"
    called.write_text("")
    called.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(called)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert console.program() == str(called)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert console.program() == "cefito"
    monkeypatch.setattr(sys, "argv", ["/x/__main__.py"])
    assert console.program() == "cefito"
