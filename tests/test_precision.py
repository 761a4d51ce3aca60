import pytest
import torch

from cefito import runtime as module
from cefito.runtime import capability, determining, resolve


@pytest.fixture
def processor(monkeypatch):
    """A processor of one's choice, as PyTorch sees it."""

    def choose(*, tile=None, wide=None, machine="x86_64"):
        monkeypatch.setattr("platform.machine", lambda: machine)
        for name, answer in (("_is_amx_tile_supported", tile), ("_is_avx512_bf16_supported", wide)):
            monkeypatch.delattr(torch.cpu, name, raising=False)
            if answer is not None:
                monkeypatch.setattr(torch.cpu, name, lambda answer=answer: answer, raising=False)
        module._processor.cache_clear()

    yield choose
    module._processor.cache_clear()


@pytest.mark.parametrize(
    ("tile", "wide", "expected"),
    [(True, True, "AMX"), (False, True, "AVX512-BF16"), (False, False, "none")],
)
def test_pytorch_is_asked_for_the_processor(processor, tile, wide, expected):
    processor(tile=tile, wide=wide)
    assert capability("cpu") == expected
    assert resolve("auto", "cpu") == ("float32" if expected == "none" else "bfloat16")


def test_a_pytorch_that_cannot_tell_and_other_processors(processor):
    processor()
    assert capability("cpu") == "none"
    processor(tile=True, wide=True, machine="arm64")
    assert capability("cpu") == "none"


def test_devices(processor):
    processor(tile=False, wide=False)
    assert [capability(each) for each in ("cuda", "cuda:1", "mps")] == ["CUDA", "CUDA", "none"]
    assert resolve("auto", torch.device("cuda:0")) == "bfloat16"
    assert resolve("auto", "mps") == "float32"


@pytest.mark.parametrize("answer", [True, False])
def test_what_is_asked_for_is_taken(processor, answer):
    processor(tile=answer, wide=answer)
    for asked in ("float32", "bfloat16"):
        assert resolve(asked, "cpu") == resolve(asked, "cuda") == asked


def section(**more):
    return {"optimiser": {"epochs": 1}, **more}


def test_how_it_is_computed_determines_nothing():
    recipe = {"precision": "float16"}
    given = {"training": section(precision="auto"), "recipe": recipe}
    assert determining([3, (1, 2), given]) == [3, [1, 2], {"training": section(), "recipe": recipe}]
    both = {"a": section(precision="float32"), "b": section(precision="auto")}
    assert determining(both, "float32") == {"a": section(), "b": section(precision="auto")}
