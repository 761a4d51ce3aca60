"""The main directions of rows."""

import numpy as np

from cefito.data.prepared import write_dataset
from cefito.data.timeline import Timeline
from cefito.recognition.classifier import Standard
from cefito.recognition.segmental import SegmentalRecogniser
from row_films import SMALL, prepared_films


def test_few_rows_have_few_directions():
    """At most one for four rows, and none along which they do not vary."""
    rows = np.random.default_rng(0).normal(size=(400, 50)).astype(np.float32)
    for count, directions in ((20, 5), (90, 22), (400, 30)):
        assert Standard.of([rows[:count]], 30).directions.shape == (50, directions)
    assert Standard.of([np.repeat(rows[:4], 100, axis=0)], 30).directions.shape == (50, 3)


def test_a_recogniser_of_fewer_directions_is_opened_again(tmp_path):
    films = prepared_films(tmp_path)
    rows = [np.hstack([video, np.ones((len(video), 4))]) for video in films.timeline.videos]
    wider = write_dataset(
        tmp_path / "wider",
        name=films.name,
        annotations=films.annotations,
        start=films.start,
        end=films.end,
        timeline=Timeline(tuple(video.astype(np.float16) for video in rows), 1.0),
        provenance=films.provenance,
    )
    config = SMALL.model_copy(update={"directions": 10})
    fitted = SegmentalRecogniser.fit(wider, range(3), config=config)
    assert fitted.standard.directions.shape == (12, 8)
    (tmp_path / "run").mkdir()
    fitted.save(tmp_path / "run")
    opened = SegmentalRecogniser.load(tmp_path / "run", films.taxonomy)
    shown = rows[0].astype(np.float32)
    np.testing.assert_allclose(
        opened.recognise(shown).rows, fitted.recognise(shown).rows, atol=1e-5
    )
