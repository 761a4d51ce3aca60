"""What each method is: the paper that it comes from, and what it needs beside windows.

What it can be asked for, its planner's `abilities` say; how large its networks are, `sizes`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from cefito.planners.base import Shape
from cefito.planners.registry import Method, find_method
from cefito.planners.settings import load_config

__all__ = ["ABOUT", "PUBLISHED", "MethodInfo", "Paper", "about", "needs_of", "published_sizes"]

CLASSIFIER = "task classifier"
DESCRIPTIONS = "descriptions of states"
GRAPH = "graph of training windows"
SERVER = "language model server"
TEXT = "text vectors of actions"

PUBLISHED = Shape(observation_dim=1536, tasks=18, actions=133, horizon=3, text_dim=512)
"""CrossTask in the unified protocol at T = 3, with text vectors of CLIP ViT-B/32."""


@dataclass(frozen=True)
class Paper:
    """Where a method was published.

    Attributes:
        title: Its title.
        venue: Conference and year; empty where it is not known.
        arxiv: Its number there; empty where it is not known.
    """

    title: str
    venue: str = ""
    arxiv: str = ""

    @property
    def place(self) -> str:
        """Venue and number, as far as they are known."""
        return ", ".join(filter(None, (self.venue, self.arxiv and f"arXiv {self.arxiv}")))

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        return {name: value or None for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """A method in the words of people.

    Attributes:
        title: Its name.
        line: What it does, in a line.
        paper: Where it was published; None where it was not.
        needs: What it is made of beside windows and its own networks; what its settings tell
            (`needs_of`) is left out.
        uses: What it makes use of where it is given; something else stands in for it otherwise.
    """

    title: str
    line: str
    paper: Paper | None = None
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


_VITERBIPLANNET = Paper("ViterbiPlanNet", "CVPR 2026", "2603.04265")
_PLANLLM = Paper(
    "PlanLLM: Video Procedure Planning with Refinable Large Language Models",
    "AAAI 2025",
    "2412.19139",
)

ABOUT: dict[str, MethodInfo] = {
    "cefito": MethodInfo(
        title="CEFITO",
        line="searches sequences of low energy, by what a field says of goal and actions",
        paper=Paper(
            "Contrastive Energy Fields for Inference-Time Procedure Planning in Instructional "
            "Videos",
            "GCPR 2026",
        ),
        uses=(TEXT,),
    ),
    "chain": MethodInfo(
        title="chain",
        line="scores whole sequences of all tasks exactly; a part of CEFITO by itself",
    ),
    "viterbi": MethodInfo(
        title="ViterbiPlanNet",
        line="emissions of a network, decoded through a differentiable Viterbi layer",
        paper=_VITERBIPLANNET,
        needs=(GRAPH,),
        uses=(DESCRIPTIONS,),
    ),
    "pdpp": MethodInfo(
        title="PDPP",
        line="diffusion over the matrix of task, actions and observations",
        paper=Paper(
            "PDPP: Projected Diffusion for Procedure Planning in Instructional Videos",
            "CVPR 2023",
            "2303.14676",
        ),
    ),
    "pkg": MethodInfo(
        title="PKG, exact",
        line="the likeliest walk between a recognised first and last action",
        paper=_VITERBIPLANNET,
        needs=(GRAPH,),
    ),
    "pkg-beam": MethodInfo(
        title="PKG, beam search",
        line="the same, searched by beam as in the published baseline",
        paper=_VITERBIPLANNET,
        needs=(GRAPH,),
    ),
    "schema": MethodInfo(
        title="SCHEMA",
        line="decodes states, then actions, looking at descriptions of states",
        paper=Paper(
            "SCHEMA: State CHangEs MAtter for Procedure Planning in Instructional Videos",
            "ICLR 2024",
            "2403.01599",
        ),
        needs=(GRAPH,),
        uses=(DESCRIPTIONS,),
    ),
    "kepp": MethodInfo(
        title="KEPP",
        line="diffusion, told walks of the graph between two actions that it predicts first",
        paper=Paper(
            "Why Not Use Your Textbook? Knowledge-Enhanced Procedure Planning of Instructional "
            "Videos",
            "CVPR 2024",
            "2403.02782",
        ),
        needs=(GRAPH,),
    ),
    "mtid": MethodInfo(
        title="MTID",
        line="PDPP's diffusion, told latents interpolated between the two observations",
        paper=Paper(
            "Masked Temporal Interpolation Diffusion for Procedure Planning in Instructional "
            "Videos",
            "ICLR 2025",
        ),
        needs=(CLASSIFIER,),
    ),
    "planllm": MethodInfo(
        title="PlanLLM-style",
        line="SCHEMA with a query transformer; start and goal are all that it sees",
        paper=_PLANLLM,
        needs=(GRAPH,),
        uses=(DESCRIPTIONS,),
    ),
    "planllm-leaky": MethodInfo(
        title="PlanLLM-style, leaky",
        line="the same, shown the true states between the steps as published: an oracle",
        paper=_PLANLLM,
        needs=(GRAPH,),
        uses=(DESCRIPTIONS,),
    ),
    "p3iv": MethodInfo(
        title="P3IV",
        line="a transformer with noise that decodes all steps at once, then Viterbi",
        paper=Paper(
            "P3IV: Probabilistic Procedure Planning from Instructional Videos with Weak "
            "Supervision",
            "CVPR 2022",
            "2205.02300",
        ),
        needs=(GRAPH,),
        uses=(TEXT,),
    ),
    "llm-ends": MethodInfo(
        title="language model, recognised ends",
        line="fills in the steps between a recognised first and last action",
        needs=(GRAPH,),
    ),
    "llm-ranked": MethodInfo(
        title="language model, ranked ends",
        line="chooses all steps, told candidates of task and ends with their probabilities",
        needs=(GRAPH,),
    ),
    "nearest": MethodInfo(
        title="nearest window", line="the training window of nearest observations"
    ),
    "frequent": MethodInfo(
        title="most frequent window",
        line="the training window that the predicted task shows most often",
    ),
}
"""All that is said of methods, by their names. What is said of new ones is added here only."""


def about(name: str) -> MethodInfo:
    """What is said of a method; where nothing is, its name."""
    return ABOUT.get(name, MethodInfo(title=name, line=""))


def needs_of(name: str) -> tuple[str, ...]:
    """What a method needs beside windows and its own networks.

    Raises:
        ConfigError: There is no such method.
    """
    sections = find_method(name).settings.model_fields
    told = (CLASSIFIER,) * ("classifier" in sections) + (SERVER,) * ("llm" in sections)
    return tuple(dict.fromkeys((*about(name).needs, *told)))


def published_sizes(method: Method) -> dict[str, int]:
    """Learned numbers of each network of a method in the preset `paper`, as for `PUBLISHED`.

    Networks are built without memory. Empty where no size is published.
    """
    config = load_config("paper", dataset="crosstask", horizon=PUBLISHED.horizon)
    with torch.device("meta"):
        return method.planner.sizes(config.settings(method.settings), PUBLISHED)
