"""Names of files: safe, reversible, and different for different names."""

from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import unquote

from hypothesis import example, given
from hypothesis import strategies as st

from cefito.files import file_names
from odd_names import ODD

MORE = ("", ".", "..", "~", "%", "%~", " a", "a.", "aux.b", "a\nb", "\ud800", "\0", "é" * 99, "É")


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
