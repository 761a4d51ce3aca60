"""The attention network of whole videos: its training, its share, and what it changes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cefito.data.timeline import row_labels
from cefito.errors import RunError
from cefito.recognition import segmental
from cefito.recognition.attention import attended, attention_steps, fit_attention
from cefito.recognition.chain import likelihoods
from cefito.recognition.held_out import (
    attention_harms,
    best_temperature,
    chosen_attention,
    chosen_rows,
)
from cefito.recognition.recogniser import SETTINGS_FILE
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.training.steps import NetworkTraining
from cefito.training.trainer import TrainingContext
from row_films import SMALL, prepared_films

SMALL_ATTENTION = {"attention_layers": 3, "temporal_steps": 40, "temporal_passes": 20}


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return prepared_films(tmp_path_factory.mktemp("films"))


@pytest.fixture(scope="module")
def config():
    return SMALL.model_copy(update=SMALL_ATTENTION)


@pytest.fixture(scope="module")
def fitted(films, config):
    """A recogniser whose attention network has half of the say, whatever is chosen."""
    return SegmentalRecogniser.fit(
        films, range(10), config=config.model_copy(update={"attention_shares": (0.5,)})
    )


@pytest.mark.parametrize(("videos", "trained"), [(10, 3), (30, 1)])
def test_folds_that_do_not_gain_end_its_training(films, config, tmp_path, videos, trained):
    """With few videos, a fold says too little, and all of them train it."""
    config = config.model_copy(update={"attention_shares": (0.0,), "folds": 3})
    context = TrainingContext(folder=tmp_path)
    chosen = [place % 10 for place in range(videos)]
    fitted = SegmentalRecogniser.fit(films, chosen, config=config, context=context)
    assert len([*tmp_path.rglob("*attention.safetensors")]) == trained
    assert fitted.held_out is not None
    assert (fitted.held_out.half is None) == (videos == 30)


def test_settings_at_other_rates():
    """Powers of the likelihood fall with the rate; attention reaches as many seconds."""
    config = RecogniserConfig(attention_layers=8, trusts=(0.1, 3.0), longest_mean=1800)
    assert config.at_rate(0.5) == config.at_rate(1.0) == config
    faster = config.at_rate(5.0)
    assert (faster.trusts, faster.attention_layers) == ((0.02, 0.6), 10)
    assert (faster.longest_mean, faster.temporal_layers) == (9000, config.temporal_layers)
    fastest = RecogniserConfig.model_validate(config.at_rate(1000.0).model_dump())  # is valid
    assert (fastest.trusts, fastest.attention_layers) == ((0.001, 0.003), 16)
    assert RecogniserConfig(attention_layers=0).at_rate(5.0).attention is None


def test_steps_of_its_training():
    config = RecogniserConfig(temporal_steps=10, temporal_passes=5)
    assert [attention_steps(videos, config) for videos in (1, 18, 19)] == [30, 30, 32]
    for none in ({"attention_layers": 0}, {"temporal_layers": 0}):
        assert attention_steps(50, config.model_copy(update=none)) == 0


def test_the_steps_of_films_are_learned(films, config):
    rows = [video.astype(np.float32) for video in films.timeline.videos]
    labels = [
        row_labels(video.steps, len(shown), 1.0, 6)
        for video, shown in zip(films.videos, rows, strict=True)
    ]
    counted = []

    def advance(count=1, *, note=""):
        counted.append(count)

    training = NetworkTraining(context=TrainingContext(), advance=advance, seed=0, name="x")
    network = fit_attention(rows[:10], labels[:10], 7, config, training)
    assert network is not None
    assert sum(counted) == 120
    logs = attended(network, rows[12])
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, rtol=1e-5)
    assert (logs.argmax(axis=1) == labels[12]).mean() > 0.9
    again = fit_attention(rows[:10], labels[:10], 7, config, training)
    assert again is not None
    np.testing.assert_array_equal(attended(again, rows[12]), logs)
    without = config.model_copy(update={"attention_layers": 0})
    assert fit_attention(rows[:10], labels[:10], 7, without, training) is None


def test_whole_videos_are_seen_by_both(fitted, films):
    """log p = (1 − a) log p(usual) + a log p(attention); row by row, the usual ones alone."""
    rows = films.timeline.videos[12].astype(np.float32)
    assert fitted.attention_share == 0.5
    usual, _ = fitted.both_logs(rows, past=False)
    prior = fitted.config.prior_power * fitted.log_prior
    other = attended(fitted.attention, fitted.standard.scaled(rows)) - prior
    plain = replace(fitted, shares=(0.0, 0.0))
    np.testing.assert_allclose(plain.log_seen(rows, past=False), (usual + other) / 2, atol=1e-9)
    past, _ = fitted.both_logs(rows, past=True)
    np.testing.assert_allclose(plain.log_seen(rows, past=True), past, atol=1e-9)


@pytest.mark.parametrize(("worse", "attends"), [(0.04, True), (0.06, False)])
def test_doubt_leaves_it_out_if_it_hides_mistakes_made_up(
    films, config, monkeypatch, worse, attends
):
    scores = iter((-1.0, -1.0 - worse))  # without it, and with it

    def chosen(*_, trust):
        return next(scores), (0.0, trust, 0.1), (), (0.0, 0.0)

    choices = []

    def rows(held, config, *, past):
        choices.append((len(held), past))
        return replace(chosen_rows(held, config, past=past), weight=0.25, temperature=2.0 + past)

    monkeypatch.setattr(segmental, "chosen_doubt", chosen)
    monkeypatch.setattr(segmental, "chosen_rows", rows)
    config = config.model_copy(update={"attention_shares": (0.5,)})
    fitted = SegmentalRecogniser.fit(films, range(10), config=config)
    assert (fitted.attention_share, fitted.doubt_attends) == (0.5, attends)
    assert choices == [(10, False), (10, True)]  # each video, held out, of all rows and the past
    assert (fitted.weights, fitted.temperatures) == ((0.25, 0.25), (2.0, 3.0))


def test_a_doubted_video_is_seen_by_both(fitted, films, tmp_path):
    """Runs of before, whose doubt was chosen without the attention network, doubt without it."""
    rows = films.timeline.videos[12].astype(np.float32)
    usual, others = fitted.both_logs(rows, past=False)
    scaled = fitted.standard.scaled(rows)
    other = attended(fitted.attention, scaled) - fitted.config.prior_power * fitted.log_prior
    (share, trust, _), unexpected = (0.25, 0.6, 0.3), fitted.config.unexpected
    doubting = replace(fitted, doubt=(share, trust, 0.3), doubt_attends=True)
    logs = (1 - share) * (usual + other) / 2 + share * others
    wanted = likelihoods(logs, trust, unexpected)
    np.testing.assert_allclose(doubting.doubted_so_far(scaled), wanted, atol=1e-9)
    seen = doubting.recognise(rows, doubt=True)
    doubting.save(tmp_path)
    kept = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    np.testing.assert_allclose(kept.recognise(rows, doubt=True).rows, seen.rows, atol=1e-6)
    header = json.loads((tmp_path / SETTINGS_FILE).read_text())
    del header["doubt_attends"]
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(header))
    before = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    wanted = likelihoods((1 - share) * usual + share * others, trust, unexpected)
    np.testing.assert_allclose(before.doubted_so_far(scaled), wanted, rtol=1e-5)
    assert not np.allclose(before.recognise(rows, doubt=True).rows, seen.rows, atol=1e-3)


def test_the_share_is_chosen_by_videos_held_out(fitted, films, config):
    """None if the network says nothing of them."""
    places = range(10, 14)
    held = []
    for place in places:
        rows, video = films.timeline.videos[place].astype(np.float32), films.videos[place]
        truth = row_labels(video.steps, len(rows), 1.0, 6)
        held.append(fitted._held(rows, truth, video.task))
    nothing = [replace(video, attended=np.zeros_like(video.attended)) for video in held]
    knows = [
        replace(
            video,
            logs=((np.zeros_like(video.attended),) * 2, video.logs[True]),
            attended=50 * np.eye(7)[video.labels] - video.prior,
        )
        for video in held
    ]
    assert chosen_attention(nothing, config) == 0
    assert chosen_attention(knows, config) == 0.5
    choice = chosen_rows(held, config, past=True)
    shown = [video.rows(choice.share, choice.trust, past=True) for video in held]
    truth = np.concatenate([video.labels for video in held])
    assert choice.chained == best_temperature(np.concatenate(shown), truth)
    wrong = [
        replace(video, attended=50 * np.eye(7)[(video.labels + 1) % 7] - video.prior)
        for video in held
    ]
    for network, alone in enumerate(([0.0], [0.25, 0.5, 0.75, 1.0])):  # usual, or of changes
        seen = [50 * np.eye(7)[video.labels] for video in held]
        logs = [[np.zeros_like(rows), np.zeros_like(rows)] for rows in seen]
        for both, rows in zip(logs, seen, strict=True):
            both[network] = rows
        pairs = [replace(v, logs=((*b,), (*b,))) for v, b in zip(held, logs, strict=True)]
        assert chosen_rows(pairs, config, past=False).share in alone
    assert attention_harms(wrong, config)
    assert not attention_harms(knows, config)
    assert not attention_harms(nothing, config)  # scores are the same
    without = config.model_copy(update={"attention_layers": 0})
    assert chosen_attention(knows, without) == 0
    assert attention_harms(knows, without)


def test_it_is_saved_with_the_recogniser(fitted, films, tmp_path):
    rows = films.timeline.videos[13].astype(np.float32)
    fitted.save(tmp_path)
    again = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    np.testing.assert_array_equal(again.recognise(rows).rows, fitted.recognise(rows).rows)
    without = replace(fitted, attention=None, attention_share=0.0)
    assert np.abs(without.recognise(rows).rows - fitted.recognise(rows).rows).max() > 1e-3
    without.save(tmp_path)
    again = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    assert again.attention is None
    replace(fitted, attention=None).save(tmp_path)  # a share of no network
    with pytest.raises(RunError, match="is missing"):
        SegmentalRecogniser.load(tmp_path, films.taxonomy)
