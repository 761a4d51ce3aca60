"""Names of files, safe and different for different names; lines appended whole or not at all."""

import json
import multiprocessing
import re
import resource
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cefito.data.vocabulary import Taxonomy
from cefito.errors import DataError, RunError
from cefito.files import append_lines, file_names, parse_json
from odd_names import ODD

MORE = ("", ".", "..", "~", "%", "%~", " a", "a.", "aux.b", "a\nb", "\ud800", "\0", "é" * 99, "É")


def test_keys_with_several_values_are_refused_by_name(tmp_path):
    """The last one would win, silently; the same value twice changes nothing."""
    text = '{"dataset": "x", "tasks": [{"id": 0, "id": 1, "name": "a"}]}'
    (tmp_path / "taxonomy.json").write_text(text)
    with pytest.raises(DataError, match=r"taxonomy.json: .*several values of 'id'"):
        Taxonomy.read(tmp_path / "taxonomy.json")
    assert parse_json('{"a": [1, {"b": 2, "b": 2}], "a": [1, {"b": 2}]}') == {"a": [1, {"b": 2}]}
    with pytest.raises(ValueError, match="several values of 'b'"):
        parse_json('[{"a": {"b": 1, "c": 2, "b": null}}]')


@given(names=st.lists(st.text(alphabet="aAbé./\\%~: \n\u2028") | st.sampled_from(ODD), unique=True))
@example(names=[*ODD, *MORE])
def test_names_of_files_are_safe_reversible_and_different(names):
    files = file_names(names)
    assert [*files] == names
    assert len({file.casefold() for file in files.values()}) == len(names)
    for name, file in files.items():
        for path in PurePosixPath(f"{file}.npy"), PureWindowsPath(f"{file}.npy"):
            assert len(path.parts) == 1
            assert path.suffix == ".npy"
        assert file[0] not in ". "
        assert len(file.encode()) < 240
        assert unquote(file, errors="surrogatepass") == name or "%~" in file or file == "%"


def test_usual_names_are_their_own():
    usual = ["1_7_360p.mp4", "P01-R02 (front)", "Zoë's tea, 2", "v10", "V11"]
    assert [*file_names(usual).values()] == usual
    assert file_names(["P01/cam"]) == {"P01/cam": "P01%2Fcam"}


WHOLE = b'{"n": 1}\n'


@pytest.mark.parametrize(
    ("left", "kept", "said"),
    [
        (b'{"n": 2, "te', b"", True),  # a kill, or a full disk
        (b'{"n": "\xc3', b"", True),
        (b'{"n": "' + b"x" * 9000, b"", True),
        (b'{"n": 2}', b'{"n": 2}\n', False),  # an editor that ends no line
        (b"a note", b"a note\n", False),
        (b"", b"", False),
    ],
)
@pytest.mark.parametrize("before", [b"", WHOLE, WHOLE * 2000])
def test_half_a_line_is_removed_before_lines_are_appended(
    tmp_path, caplog, before, left, kept, said
):
    path = tmp_path / "x.jsonl"
    path.write_bytes(before + left)
    append_lines(path, ['{"n": 3}', '{"n": "é"}'])
    assert path.read_bytes() == before + kept + '{"n": 3}\n{"n": "é"}\n'.encode()
    assert ("its last line was not whole" in caplog.text) is said


def test_lines_for_which_there_is_no_space_are_not_begun(tmp_path):
    path, (soft, hard) = tmp_path / "x.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    append_lines(path, ["{}"])
    for lines in (["x" * 500], ["x" * 60] * 3):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        try:
            with pytest.raises(RunError, match=r"\(File too large\)\. Nothing"):
                append_lines(path, lines)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_text() == "{}\n"
    append_lines(path, ["x" * 500])
    assert path.read_text() == "{}\n" + "x" * 500 + "\n"
    with pytest.raises(RunError, match=re.escape("is a folder, not a file")):
        append_lines(tmp_path, ["{}"])


def _append(path, number):
    for _ in range(50):
        append_lines(path, [json.dumps({"n": number, "text": "x" * 20000})] * 2)


def test_processes_append_whole_lines(tmp_path):
    path, context = tmp_path / "x.jsonl", multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append, args=(path, number)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    numbers = [json.loads(line)["n"] for line in path.read_text().splitlines()]
    assert numbers[::2] == numbers[1::2]
    assert sorted(numbers) == [0] * 100 + [1] * 100
