"""A graph of ONNX, node by node, as NumPy computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError, install_command
from cefito.files import write_bytes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

OPSET = 18
"""Version of the operators of ONNX, which onnxruntime runs from 1.14 on."""
FORMAT = 8
"""Version of the files that goes with it."""
Shape = Sequence[int | str]
"""Sizes of an array; a name stands for any size."""


def check_onnx() -> None:
    """Check that the package onnx is installed (ConfigError)."""
    try:
        import onnx  # noqa: F401
    except ImportError as problem:
        command = install_command("onnx")
        missing = f"this needs the package onnx, which is not installed. Run: {command}"
        raise ConfigError(missing) from problem


class Graph:
    """Nodes and constants, whose names begin with a prefix; values are known by their names."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._nodes: list[Any] = []
        self._constants: dict[str, NDArray[Any]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}v{self._count}"

    def input(self, name: str, shape: Shape, kind: Any = np.float32) -> str:
        """Declare an input.

        Args:
            name: Its name.
            shape: Its sizes.
            kind: Type of its numbers.
        """
        self._inputs.append(_described(self._prefix + name, kind, shape))
        return self._prefix + name

    def output(self, value: str, name: str, shape: Shape, kind: Any = np.float32) -> None:
        """Declare a value as an output.

        Args:
            value: The value.
            name: Name of the output.
            shape: Its sizes.
            kind: Type of its numbers.
        """
        named = self._prefix + name
        self._add("Identity", [value], [named], {})
        self._outputs.append(_described(named, kind, shape))

    def constant(self, array: Any, kind: Any = None) -> str:
        """Add a constant, of the given type or its own."""
        name = self._name()
        self._constants[name] = np.ascontiguousarray(np.asarray(array, dtype=kind))
        return name

    def __call__(self, operator: str, *values: str | NDArray[Any], **attributes: Any) -> str:
        """Add a node, and return its one output; arrays become constants."""
        name = self._name()
        named = [one if isinstance(one, str) else self.constant(one) for one in values]
        self._add(operator, named, [name], attributes)
        return name

    def scan(
        self,
        states: Sequence[str],
        rows: Sequence[str],
        body: Callable[[Graph, Sequence[str], Sequence[str]], tuple[Sequence[str], Sequence[str]]],
        *,
        shapes: tuple[Sequence[Shape], Sequence[Shape], Sequence[Shape]],
        kind: Any = np.float32,
        backwards: bool = False,
    ) -> list[str]:
        """Go through rows with states; return the last states, and what each row gave, stacked.

        Args:
            states: Values of the states at first.
            rows: Values with a row at each place.
            body: Takes a graph, states and rows; returns new states, and what the row gives.
            shapes: Sizes of states, of a row, and of what it gives.
            kind: Type of all their numbers.
            backwards: Whether the last row comes first; what rows give is in their order anyway.
        """
        from onnx import helper

        inner = Graph(f"{self._name()}_")  # it sees the values of this one
        before, read = (
            [inner.input(f"{role}{place}", shape, kind) for place, shape in enumerate(shapes_of)]
            for role, shapes_of in zip("sr", shapes[:2], strict=True)
        )
        after, given = body(inner, before, read)
        values = zip((*after, *given), (*shapes[0], *shapes[2]), strict=True)
        for place, (value, shape) in enumerate(values):
            inner.output(value, f"o{place}", shape, kind)
        names = [self._name() for _ in [*after, *given]]
        direction = int(backwards)
        self._nodes.append(
            helper.make_node(
                "Scan",
                [*states, *rows],
                names,
                body=inner._proto("body"),
                num_scan_inputs=len(rows),
                scan_input_directions=[direction] * len(rows),
                scan_output_directions=[direction] * len(given),
            )
        )
        return names

    def _add(
        self, operator: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
    ) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node(operator, inputs, outputs, **attributes))

    def _proto(self, name: str) -> GraphProto:
        from onnx import helper, numpy_helper

        constants = [numpy_helper.from_array(one, name) for name, one in self._constants.items()]
        return helper.make_graph(self._nodes, name, self._inputs, self._outputs, constants)

    def model(self, notes: Mapping[str, str]) -> ModelProto:
        """Return the model, checked, with notes."""
        from onnx import checker, helper

        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(self._proto("cefito"), opset_imports=opsets, ir_version=FORMAT)
        helper.set_model_props(model, dict(notes))
        checker.check_model(model, full_check=True)
        return model

    def write(self, path: Path, notes: Mapping[str, str]) -> None:
        """Write the model into a file, atomically."""
        write_bytes(path, self.model(notes).SerializeToString())


def _described(name: str, kind: Any, shape: Shape) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), list(shape)
    )
