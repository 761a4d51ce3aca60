import sys
import zipfile

import numpy as np
import pytest
import torch

from cefito.data.readers.feature_files import FeatureError, FileFolder, load_features
from cefito.errors import DataError
from refusals import refusal
from traps import Trap, npy_bytes


def read(path, wanted=None):
    features = load_features(path)
    rows = np.arange(features.rows) if wanted is None else np.asarray(wanted)
    return features.read(rows)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return path


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4"])
def test_published_archive(tmp_path, write_archive, features_of, compression, dtype):
    whole = features_of("a", 40).astype(dtype)
    path = write_archive(tmp_path / "a.npy", whole, compression=compression)
    assert np.array_equal(read(path), whole.astype(np.float32))
    assert np.array_equal(read(path, [0, 3, 39]), whole[[0, 3, 39]].astype(np.float32))
    assert not list(tmp_path.rglob("outside*"))


def test_plain_arrays_and_archives_with_one_array(tmp_path, features_of):
    whole = features_of("a", 40)
    np.save(tmp_path / "plain.npy", whole)
    np.save(tmp_path / "turned.npy", np.asfortranarray(whole))
    np.savez(tmp_path / "one.npz", whole)
    np.savez_compressed(tmp_path / "turned.npz", frames_features=whole.T.copy().T, other=whole[:2])
    for name in ("plain.npy", "turned.npy", "one.npz", "turned.npz"):
        assert np.array_equal(read(tmp_path / name), whole)
        assert np.array_equal(read(tmp_path / name, [7, 11]), whole[[7, 11]])


@pytest.mark.parametrize("ending", ["pt", "pth"])
def test_tensors(tmp_path, features_of, ending):
    whole = torch.from_numpy(features_of("a", 12))
    path = tmp_path / f"a.{ending}"
    for stored in (whole, {"frames_features": whole, "fps": 1}, {"x": whole.bfloat16()}):
        torch.save(stored, path)
        np.testing.assert_allclose(read(path), whole, rtol=0 if stored is whole else 0.01)
    torch.save({"x": whole, "y": whole}, path)
    assert "expected one array 'frames_features', found 'x', 'y'" in refused(path)[1]
    torch.save(torch.ones(3, 2, dtype=torch.int64), path)
    assert "holds int64 [3, 2]" in refused(path)[1]
    path.write_bytes(path.read_bytes()[:-40])
    assert "is truncated" in refused(path)[1]


def test_tensors_in_pickled_objects_are_never_loaded(tmp_path, flag):
    torch.save({"x": Trap(flag)}, tmp_path / "a.pt")
    assert "never loaded" in refused(tmp_path / "a.pt")[1]


def test_films_are_no_features(tmp_path):
    (tmp_path / "a.MP4").write_bytes(b"film")
    assert "is a film or a picture, not features. Give it as" in refused(tmp_path / "a.MP4")[1]


def test_hdf5(tmp_path, features_of, monkeypatch):
    h5py = pytest.importorskip("h5py")
    whole, path = features_of("a", 12), tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["features"] = whole
        file.create_group("about")
    np.testing.assert_array_equal(read(path, [3, 4]), whole[3:5])
    with h5py.File(path, "a") as file:
        file["more"] = whole
    assert "expected one array 'frames_features', found 'features', 'more'" in refused(path)[1]
    path.write_bytes(path.read_bytes()[:100])
    assert "truncated or damaged" in refused(path)[1]
    monkeypatch.setitem(sys.modules, "h5py", None)
    refusal(DataError, read, path, match=r"pip install h5py")


def refused(path, wanted=None):
    with pytest.raises(FeatureError) as caught:
        read(path, wanted)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return caught.value.reason, message


def test_pickled_features_are_refused_and_never_loaded(tmp_path, flag):
    data = npy_bytes(np.array([[Trap(flag)]], dtype=object), pickled=True)
    (tmp_path / "plain.npy").write_bytes(data)
    for path in (tmp_path / "plain.npy", archive(tmp_path / "a.npy", frames_features=data)):
        reason, message = refused(path)
        assert reason == "unreadable"
        assert "never loaded" in message


def test_damage(tmp_path, write_archive, features_of):
    whole = features_of("a", 40)
    path = write_archive(tmp_path / "a.npy", whole)
    data = path.read_bytes()
    for size in (0, 3, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert refused(path)[0] == "unreadable"
    place = data.index(whole.tobytes()) + 17
    path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
    assert "Bad CRC-32" in refused(path, [0])[1]
    two = archive(tmp_path / "two.npy", one=npy_bytes(whole), two=npy_bytes(whole))
    assert "array 'frames_features', found 'one', 'two'" in refused(two)[1]
    assert refused(tmp_path / "none.npy")[1].endswith("no such file.")
    np.save(tmp_path / "b.npy", whole)
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:-1])
    assert refused(tmp_path / "b.npy")[0] == "unreadable"


@pytest.mark.parametrize(
    "array",
    [
        *(np.zeros(5, np.float32), np.zeros((5, 2), np.int64)),
        *(np.zeros((0, 2), np.float32), np.zeros((5, 0), np.float32)),
    ],
)
def test_wrong_shape_or_kind(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    reason, message = refused(tmp_path / "a.npy")
    assert reason == "wrong shape"
    assert f"holds {array.dtype} {list(array.shape)}; expected floating-point numbers" in message


def test_nan_is_named_with_its_second_and_only_where_it_is_needed(tmp_path, features_of):
    whole = features_of("a", 40)
    whole[17, 2] = np.nan
    np.save(tmp_path / "a.npy", whole)
    assert np.array_equal(read(tmp_path / "a.npy", [16, 18]), whole[[16, 18]])
    reason, message = refused(tmp_path / "a.npy", [16, 17, 18])
    assert reason == "NaN or infinity"
    assert f"{tmp_path / 'a.npy'}: second 17 (row 17, counted from 0) holds NaN" in message


@pytest.fixture
def folder(tmp_path):
    for name in (
        *("23521_abc.npy", "plain.npz", "deep/x_y_z.npy", "twice_v.npy", "again_v.npy"),
        *("1_7_360p.mp4.npz", "1_70_360p.npz", "notes.txt"),
    ):
        path = tmp_path / "features" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return FileFolder(tmp_path / "features")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("abc",), "23521_abc.npy"),
        (("/their/disk/23521_abc.npy", "zzz"), "23521_abc.npy"),
        (("C:\\data\\plain.npy",), "plain.npz"),
        *((("y_z",), "deep/x_y_z.npy"), (("nothing", "z"), "deep/x_y_z.npy")),
        *((("1_7",), "1_7_360p.mp4.npz"), (("1_70_360p",), "1_70_360p.npz")),
    ],
)
def test_files_are_found_by_name(folder, names, expected):
    path, name = folder.find(names)
    assert path == folder.folder / expected
    assert name in path.stem


def test_a_file_whose_path_is_the_name_comes_first(tmp_path):
    names = ["cam", "P01/cam", "x/P01/cam", "x", "x.npy"]
    for name in names:
        path = tmp_path / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    folder = FileFolder(tmp_path)
    assert [folder.find((name,)) for name in names] == [
        (tmp_path / f"{name}.npy", name) for name in names
    ]


def test_files_that_are_not_there(folder, tmp_path):
    (tmp_path / "outside.npy").write_bytes(b"")
    (folder.folder / "gone.npy").symlink_to(tmp_path / "nowhere")
    folder = FileFolder(folder.folder)
    for name in ("bc", "../outside", "../../etc/passwd", "notes", "gone", "abc_", ""):
        with pytest.raises(FeatureError) as caught:
            folder.find((name,))
        assert caught.value.reason == "no features"
    with pytest.raises(FeatureError, match=r"video 'v': again_v\.npy, twice_v\.npy"):
        folder.find(("v",))


def test_folders_without_features(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        FileFolder(tmp_path / "none")
    with pytest.raises(DataError, match=r"holds no .npy, .npz, .*\.hdf5 files"):
        FileFolder(tmp_path)
