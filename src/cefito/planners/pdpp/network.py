"""The network of PDPP."""

from __future__ import annotations

from cefito.planners.diffusion.matrix import Layout, task_block
from cefito.planners.diffusion.network import DiffusionNetwork, check_horizon
from cefito.planners.pdpp.settings import PdppConfig

__all__ = ["PdppNetwork", "check_pdpp_horizon"]


class PdppNetwork(DiffusionNetwork):
    """Denoises matrices of task, action and observation; the task is given.

    Args:
        config: Widths, steps, treatment of the observations.
        observation_dim: E.
        task_count: C.
        action_count: K.
        horizon: T.

    Raises:
        ConfigError: More levels than the horizon has steps.
    """

    def __init__(
        self,
        *,
        config: PdppConfig,
        observation_dim: int,
        task_count: int,
        action_count: int,
        horizon: int,
    ) -> None:
        check_pdpp_horizon(config, horizon)
        layout = Layout(
            before=(task_block(task_count),),
            action_count=action_count,
            observation_dim=observation_dim,
            horizon=horizon,
        )
        super().__init__(config=config, layout=layout)
        self.task_count = task_count


def check_pdpp_horizon(config: PdppConfig, horizon: int) -> None:
    """As `check_horizon`, of PDPP."""
    check_horizon(config, horizon, method="PDPP", section="pdpp")
