"""Run a folder of ONNX beside the library: how far apart they are, and milliseconds on one core.

The recogniser and its follower run on the test videos of a data set. The encoder runs on frames of
films, which also calibrate its copy in int8; a row of int8 is compared by its cosine.

    python benchmarks/edge.py RUN [--dataset DATA] [--films FILM ...] --out FILE
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import common
from cefito.export.folder import START, export_onnx
from cefito.files import write_json
from cefito.recognition.stream import step_stream
from cefito.runs.run import Run, open_run

_WARM = 3  # calls that are not counted


def session(path: Path) -> Any:
    """A file of ONNX on one core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def clocked(call: Any) -> tuple[Any, float]:
    """The value of a call, and its milliseconds."""
    began = time.perf_counter()
    value = call()
    return value, 1000 * (time.perf_counter() - began)


def recognisers(run: Run, videos: list[np.ndarray], folder: Path) -> dict[str, Any]:
    """Greatest differences and median milliseconds of a row, of whole videos and row by row."""
    model = run.own_recogniser
    whole, follower = session(folder / "recogniser.onnx"), session(folder / "follower.onnx")
    far: dict[str, float] = {"whole": 0.0, "follower": 0.0}
    taken: dict[str, list[float]] = {name: [] for name in ("whole", "follower", "library", "row")}
    for rows in videos:
        (labels, tasks), time_of = clocked(partial(whole.run, None, {"rows": rows}))
        taken["whole"].append(time_of / len(rows))
        seen, time_of = clocked(partial(model.recognise, rows))
        taken["library"].append(time_of / len(rows))
        apart = np.abs(labels - seen.rows).max(), np.abs(tasks - seen.tasks).max()
        far["whole"] = max(far["whole"], *map(float, apart))
        with np.load(folder / START) as start:
            state = dict(start)
        stream = step_stream(model)
        for row in rows:
            values, time_of = clocked(partial(follower.run, None, {"row": row, **state}))
            taken["follower"].append(time_of)
            state = dict(zip(state, values[3:], strict=True))
            _, time_of = clocked(partial(stream.observe, row))
            taken["row"].append(time_of)
            wanted = stream.now, stream.tasks, stream.next_actions
            apart = [np.abs(a - b).max() for a, b in zip(values, wanted, strict=False)]
            far["follower"] = max(far["follower"], *map(float, apart))
    medians = {name: round(statistics.median(values), 3) for name, values in taken.items()}
    return {"videos": len(videos), "rows": sum(map(len, videos)), "apart": far, "ms": medians}


def pictures(films: Sequence[Path]) -> np.ndarray:
    """Prepared pictures [n, 3, 224, 224], one a second of films."""
    from cefito.encoders.efficientnet import EfficientNetImages, prepared
    from cefito.encoders.frames import clips, probe
    from cefito.encoders.video import Pictures

    sampling, shown = Pictures(EfficientNetImages()).sampling, list[torch.Tensor]()
    for film in films:
        info = probe(film)
        for clip in clips(info, range(info.seconds), sampling):
            shown.append(prepared(clip[:, 0][None].float() / 255))
    return torch.cat(shown).numpy()


def encoders(folder: Path, shown: np.ndarray, work: Path) -> dict[str, Any]:
    """Milliseconds a picture and MiB of the encoder in float32 and int8, and their cosine."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(shown[: len(shown) // 2])

        def get_next(self) -> dict[str, np.ndarray] | None:
            picture = next(self.left, None)
            return None if picture is None else {"pictures": picture[None]}

    before, ready, small = folder / "encoder.onnx", work / "ready.onnx", work / "int8.onnx"
    quantization.quant_pre_process(str(before), str(ready), skip_symbolic_shape=True)
    quantization.quantize_static(str(ready), str(small), Reader(), per_channel=True)
    rows, result = {}, {}
    for name, path in (("float32", before), ("int8", small)):
        opened, times, made = session(path), [], []
        for picture in shown[len(shown) // 2 :]:
            (row,), time_of = clocked(partial(opened.run, None, {"pictures": picture[None]}))
            made.append(row[0])
            times.append(time_of)
        rows[name] = np.stack(made)
        size = round(path.stat().st_size / 2**20, 1)
        result[name] = {"ms": round(statistics.median(times[_WARM:]), 1), "mib": size}
    lengths = (np.linalg.norm(one, axis=1) for one in rows.values())
    cosines = (rows["float32"] * rows["int8"]).sum(axis=1) / np.prod([*lengths], axis=0)
    named = {"mean": cosines.mean(), "least": cosines.min()}
    result["cosine"] = {name: round(float(value), 4) for name, value in named.items()}
    return {**result, "pictures": len(shown)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--films", type=Path, nargs="+", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    run = open_run(given.run)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "onnx"
        exported = export_onnx(run, folder)
        data = run.dataset(given.dataset)
        assert data.timeline is not None
        videos = [
            rows.astype(np.float32)
            for rows, video in zip(data.timeline.videos, data.videos, strict=True)
            if video.split == "test"
        ]
        report = {
            "command": "python benchmarks/edge.py RUN",
            "dataset": {"name": data.name, "fingerprint": data.fingerprint},
            "machine": common.machine(),
            "onnxruntime": onnxruntime.__version__,
            "files": {name: one.bytes for name, one in exported.files.items()},
            "recogniser": recognisers(run, videos, folder),
        }
        if given.films:
            report["encoder"] = encoders(folder, pictures(given.films), Path(place))
    if given.out is not None:
        write_json(given.out, report)
    print(report, file=sys.stdout)


if __name__ == "__main__":
    main()
