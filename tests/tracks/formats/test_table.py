"""Annotations as one table."""

import csv
from dataclasses import replace

import pytest

from cefito.data.annotations import Step, Video, read_videos, write_videos
from cefito.data.readers.step_source import convert_steps, read_steps
from cefito.errors import DataError
from cefito.inference.verification import open_verifier
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from refusals import refusal

TABLE = """video,task,step,start,end,split
clips/one.mp4,tea,pour,5,6.5,train
clips/one.mp4,tea,boil  water,1,4,train
two,toast,"cut, thin",0,2,test
two,toast,pour,2,3,test
"""
EXPECTED = (
    Video(video_id="clips/one.mp4", split="train", task=0, steps=(Step(1, 4, 1), Step(5, 6.5, 0))),
    Video(video_id="two", split="test", task=1, steps=(Step(0, 2, 2), Step(2, 3, 0))),
)


@pytest.fixture
def write(tmp_path):
    def make(text, name="mine.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_text(text, encoding=encoding)
        return path

    return make


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("video,task", " Video , TASK"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(", thin", "¤").replace(",", ";").replace("¤", ", thin"),
        lambda text: text.replace(", thin", "¤").replace(",", "\t").replace("¤", ", thin"),
    ],
)
def test_csv(write, change, encoding):
    found = read_steps(write(change(TABLE), encoding=encoding))
    taxonomy = found.annotations.taxonomy
    assert taxonomy.dataset == "mine"
    assert taxonomy.names([0, 1, 2]) == ["pour", "boil water", "cut, thin"]
    assert [task.name for task in taxonomy.tasks] == ["tea", "toast"]
    assert [task.actions for task in taxonomy.tasks] == [(0, 1), (0, 2)]
    assert found.annotations.videos == EXPECTED
    assert found.names["clips/one.mp4"] == ("clips/one.mp4", "clips/one")
    assert found.notes == ()


def write_parquet(path, columns):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return path


COLUMNS = {
    "Video": ["clips/one.mp4", "clips/one.mp4", "two", "two"],
    "task": ["tea", "tea", "toast", "toast"],
    "step": ["pour", "boil water", "cut, thin", "pour"],
    "start": [5.0, 1.0, 0.0, 2.0],
    "end": [6.5, 4.0, 2.0, 3.0],
    "split": ["train", "train", "test", "test"],
}


def test_tables_of_every_ending_are_read_alike(tmp_path):
    names, rows = list(COLUMNS), [*map(list, zip(*COLUMNS.values(), strict=True))]
    tables = [write_parquet(tmp_path / "mine.parquet", COLUMNS)]
    for ending, separator in ((".csv", ","), (".tsv", "\t"), (".txt", "\t")):
        tables.append(tmp_path / f"mine{ending}")
        with tables[-1].open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator).writerows([names, *rows])
    annotations = [read_steps(path).annotations for path in tables]
    assert annotations[0].videos == EXPECTED
    assert all(other == annotations[0] for other in annotations)


def test_parquet(tmp_path):
    holes = write_parquet(tmp_path / "holes.parquet", COLUMNS | {"step": ["pour", None, "x", "y"]})
    with pytest.raises(DataError, match=r"row 1 .*: 'step' is empty"):
        read_steps(holes)
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"broken.parquet: cannot be read as Parquet"):
        read_steps(tmp_path / "broken.parquet")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"mine.csv \(table of steps\): holds no steps"),
        ("video,task,step,begin,end\na,b,c,1,2\n", "has no column 'start', only video, task"),
        (
            "video,task,stpe,start,end\na,b,c,1,2\n",
            r"no column 'step', only .*, end \(did you mean 'stpe'\?\)\. Give its name \(step=",
        ),
        (
            "video,aufgabe,step,begin,end\na,b,c,1,2\n",
            r"no column 'task' and no column 'start', only .* \(task=NAME, start=NAME\), or one",
        ),
        ("video,task,step,start,end,Step\na,b,c,1,2,d\n", "mine.csv: has two columns 'step'"),
        ("5,5,3\n12,20,1\n", "mine.csv: its first line holds no names of columns, only '5, 5, 3'"),
        ("a,tea,boil,0,3\n" * 2, "by the file, or put a line with names first"),
        (TABLE + "two,toast,pour,-1,3,test\n", "line 6: the step runs from -1.0 to 3.0 "),
        (TABLE + "two,toast,pour,1:60,3,test\n", "line 6: the step runs from '1:60' to '3'"),
        (TABLE + 'two,toast,pour,"1,234.5",3,test\n', "line 6: the step runs from '1,234.5' to"),
        (TABLE + 'two,toast,pour,"7,5",8,test\n', "line 6: has another decimal sign than line 2"),
        (TABLE + "two,toast,pour,,3,test\n" * 2, "mine.csv, line 6, line 7: 'start' is empty"),
        (TABLE + "two,toast,pour,1,2,test,9\n", "mine.csv, line 6: has too many cells"),
        (
            TABLE + "".join(f"two,toast,pour,{n},3,test\n" for n in range(4, 16)),
            "line 14, line 15 and 2 more: the step runs from 4.0 to 3.0",
        ),
        (TABLE + "two,toast,pour,true,3,test\n", "line 6: the step runs from 'true' to '3'"),
        (TABLE + "two,toast,pour,1_0,30,test\n", "line 6: the step runs from '1_0' to '30'"),
        (TABLE + "two,toast,pour,٣,4,test\n", "line 6: the step runs from '٣' to '4'"),
        (TABLE + "two,toast,pour,1,3,dev\n", "mine.csv, line 6: split is 'dev'; expected one of"),
        (
            TABLE + "two,tea,pour,1,3,test\n",
            "6: video 'two' has task 'tea', but before task 'toast'. C",
        ),
        (
            TABLE + "two,toast,pour,1,3,train\n",
            "'two' has split 'train', but before split 'test'. C",
        ),
        (TABLE + 'two,"toast,pour\n', "cannot be read as a table"),
    ],
)
def test_tables_that_are_malformed(write, text, match):
    path = write(text)
    assert refusal(DataError, read_steps, path, match=match).startswith(str(path))


def test_a_table_as_a_spreadsheet_writes_it(write):
    found = read_steps(
        write(
            "sep=;\r\n"
            "Video;Aufgabe;Aktion;von;bis;split\r\n"
            "clips/one.mp4;tea;pour;00:05;0:00:06,5;Train\r\n"
            ";;;;;\r\n"
            "clips/one.mp4;tea;boil  water;1,0;4,0;train;\r\n"
            'two;toast;"cut, thin";0;2;TEST\r\n'
            "two;toast;pour;2;3;test\r\n"
            "\r\n",
            encoding="utf-8-sig",
        ),
        choices=Choices(
            columns={"task": "aufgabe", "step": "Aktion", "start": "von", "end": "bis"}
        ),
    )
    assert found.annotations.videos == EXPECTED


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"action": "step"}, "column 'action' is not needed. Expected the"),
        ({"step": "Aktion"}, "has no column 'aktion', only video, task, step, start"),
        ({"split": "part"}, "has no column 'part', only"),
    ],
)
def test_columns_that_there_are_not(write, columns, match):
    with pytest.raises(DataError, match=match) as caught:
        read_steps(write(TABLE), choices=Choices(columns=columns))
    assert caught.value.setting == "column"


def test_windows_1252_is_decoded_and_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("video,task,step,start,end\r\na,b,Brühe – kochen,0,1\r\n".encode("cp1252"))
    found = read_steps(path)
    assert found.annotations.taxonomy.actions[0].name == "Brühe – kochen"
    assert found.notes[0].startswith("x.csv is not UTF-8 and was read as Windows-1252.")
    chosen = read_steps(path, choices=Choices(encoding="cp1250"))
    assert chosen.annotations == found.annotations
    assert "Windows-1252" not in " ".join(chosen.notes)


@pytest.mark.parametrize(
    ("data", "encoding", "match"),
    [
        (b"video\x81,\x1b[31m", None, r"x.csv: is not text in UTF-8 or Windows-1252. Give its en"),
        (b"PK\x03\x04abc\x00", None, "x.csv: is a ZIP archive or a workbook. Unpack it, or save"),
        ("Brühe".encode("cp1252"), "utf-8", "is not text in UTF-8"),
        (TABLE.encode(), "latin-0", "'latin-0' is not an encoding of text"),
        (TABLE.encode(), "rot13", "'rot13' is not an encoding of text"),
    ],
)
def test_other_encodings(tmp_path, data, encoding, match):
    (tmp_path / "x.csv").write_bytes(data)
    choices = Choices(encoding=encoding)
    found = refusal(DataError, read_steps, tmp_path / "x.csv", choices=choices, match=match)
    assert "\x1b" not in found


def test_repeated_lines_are_left_out_and_named(write):
    lines = TABLE.splitlines(keepends=True)
    found = read_steps(write(TABLE + lines[4].replace("2,3", "2.0,3") + lines[2]))
    assert found.annotations.videos == EXPECTED
    assert found.notes[0].startswith("Left out 2 repeated steps, ")
    assert found.notes[0].endswith("mine.csv, line 6, line 7.")


def test_two_tables_of_one_video(write):
    paths = [write(TABLE), write(TABLE.replace("5,6.5", "5,7"), name="other.csv")]
    paths[1].write_text(paths[1].read_text().replace("2,3", "2,4"))
    with pytest.raises(DataError, match=r"other\.csv: .*'clips/one\.mp4', 'two', as \S+mine.csv"):
        read_steps(paths)
    paths[1] = write("video,task,step,start,end\nthree,tea,pour,5,7\n", name="other.csv")
    with pytest.raises(DataError, match="video 'three' has no split"):
        read_steps(paths)


def test_times_in_frames(write):
    text = "video,task,step,start_frame,last frame\none,tea,pour,30,75\n"
    columns = {"start": "start_frame", "end": "Last Frame"}
    found = read_steps(write(text), choices=Choices(columns=columns, frame_rate=30))
    assert found.annotations.videos[0].steps == (Step(1, 2.5, 0),)
    with pytest.raises(DataError, match="'start_frame' and 'end'"):
        read_steps(
            write(text.replace("last frame", "end")),
            choices=Choices(columns={"start": "start_frame"}),
        )
    with pytest.raises(DataError, match="holds no frame rate"):
        read_steps(write(text), choices=Choices(columns=columns))


def test_names_that_differ_by_little(write):
    found = read_steps(
        write(
            "video,task,step,start,end\n"
            "a,soup,mince garlic,0,1\na,soup,cook 2 minutes,1,2\na,soup,cook 3 minutes,2,3\n"
            "a,soup,mince garlik,3,4\nb,salad,mince the garlic,0,1\nb,salad,Cook: 2 minutes,1,2\n"
            "b,salad,push the pin out,2,3\nb,salad,push the pin in,3,4\n"
        )
    )
    pairs = [tuple(note.split("'")[1:4:2]) for note in found.notes if "by little" in note]
    assert pairs == [
        ("mince garlic", "mince garlik"),  # by letters
        ("cook 2 minutes", "Cook: 2 minutes"),
        ("mince garlic", "mince the garlic"),  # by words
    ]
    pytest.importorskip("wordllama")
    text = "video,task,step,start,end\na,x,put in the battery,0,1\nb,y,put battery in,0,1\n"
    assert "'put in the battery' and 'put battery in'" in read_steps(write(text)).notes[0]


GROUPED = """video,task,step,start,end,group
a,tea,pour,5,6,anna
a,tea,boil,1,4,anna
b,tea,pour,1,4,
c,tea,pour,1,4,ben
d,tea,pour,1,4,ben
"""


def test_groups_are_read_written_and_kept_apart(write, tmp_path):
    source = read_steps(write(GROUPED))
    videos = source.annotations.videos
    assert [video.group for video in videos] == ["anna", "", "ben", "ben"]
    assert len({video.split for video in videos if video.group == "ben"}) == 1
    assert "with fewer than 30 videos, all are for training" in source.notes[-1]
    convert_steps([write(GROUPED)], tmp_path / "again.csv")
    again = read_steps(tmp_path / "again.csv").annotations.videos
    assert [video.group for video in again] == ["anna", "", "ben", "ben"]
    ungrouped = GROUPED.replace(",anna", "").replace(",ben", "").replace(",group", "")
    (tmp_path / "videos.csv").write_text("video,group\na,anna\nb,ben\nc,ben\nd,ben\n")
    table = Choices(video_table=tmp_path / "videos.csv")
    named = read_steps(write(ungrouped.replace("4,\n", "4\n")), choices=table)
    assert [video.group for video in named.annotations.videos] == ["anna", "ben", "ben", "ben"]
    write_videos(tmp_path / "videos.jsonl", videos)
    assert read_videos(tmp_path / "videos.jsonl", source.annotations.taxonomy) == videos


def test_names_that_differ_in_case_alone_are_one(write, tmp_path):
    lines = [
        *("video,task,step,start,end", "a,Make tea,Boil,0,2", "a,make tea,pour ,2,3"),
        *("b,make  Tea,boil,0,2", "b,make Tea, Pour,2,3", "b,make tea,pours,3,4"),
    ]
    path = write("\n".join(lines))
    source = read_steps(path)
    taxonomy, videos = source.annotations.taxonomy, source.annotations.videos
    assert [task.name for task in taxonomy.tasks] == ["Make tea"]
    assert [action.name for action in taxonomy.actions] == ["Boil", "pour", "pours"]
    assert [[step.action for step in video.steps] for video in videos] == [[0, 1], [0, 1, 2]]
    assert source.notes[:3] == (
        "one task, as names differ in case alone: 'Make tea', 'make Tea'",
        "one step, as names differ in case alone: 'Boil', 'boil'",
        "one step, as names differ in case alone: 'pour', 'Pour'",
    )
    near = "step names that differ by little: 'pour' and 'pours'; 'pours' is in 'b' alone."
    assert source.notes[3].startswith(near)
    convert_steps([path], tmp_path / "again.csv")
    assert read_steps(tmp_path / "again.csv").annotations == replace(
        source.annotations, taxonomy=replace(taxonomy, dataset="again")
    )
    _, verifier = open_verifier(path)
    assert verifier.taxonomy.names([0, 1, 2]) == ["Boil", "pour", "pours"]
    both = write(lines[0] + "\na,tea,Boil,0,1\na,tea,boil,1,2\n", "both.csv")
    (track,) = read([both], Choices()).tracks  # names for a taxonomy that may have both
    assert [step.name for step in track.steps] == ["Boil", "boil"]


def test_groups_that_lines_contradict_or_that_several_splits_have(write):
    text = GROUPED.replace("boil,1,4,anna", "boil,1,4,ben")
    refusal(DataError, read_steps, write(text), match="group 'ben', but before group 'anna'")
    lines = GROUPED.splitlines()
    splits = ["split", "train", "train", "train", "train", "test"]
    split = "\n".join(",".join(pair) for pair in zip(lines, splits, strict=True))
    notes = read_steps(write(split)).notes
    assert notes[-1] == "Groups with videos of several splits: 'ben'."


@pytest.mark.parametrize(("videos", "test"), [(15, 0.3), (14, 0.0)])
def test_splits_are_drawn_of_thirty_videos_or_more(write, videos, test):
    """30 % of the videos of each task become test; fewer than 30 videos all train."""
    rows = [
        f"{task}{number},{task},{step},{start},{start + 2}\n"
        for task in ("tea", "toast")
        for number in range(videos)
        for start, step in enumerate(("one", "two"))
    ]
    found = read_steps(write("video,task,step,start,end\n" + "".join(rows)))
    splits = [(video.task, video.split) for video in found.annotations.videos]
    for task in (0, 1):
        assert splits.count((task, "test")) == round(test * videos)
        assert splits.count((task, "train")) == videos - round(test * videos)
    said = "30 % of the videos of each task" if test else "all are for training"
    assert said in " ".join(found.notes)


def test_other_columns_and_lines_above_the_heads_are_ignored(write):
    lines = [f"{line},why not" for line in TABLE.splitlines()[1:]]
    text = "# by Ada\n# in May\n" + "\n".join([f"{TABLE.splitlines()[0]},remark", *lines]) + "\n"
    assert read_steps(write(text)).annotations.videos == EXPECTED
