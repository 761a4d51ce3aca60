"""From annotated videos to windows.

Taxonomy and videos, the prepared data set, its sources, the embedded world, simulated observations.
"""

from cefito.data.annotations import Annotations, Step, Video, read_annotations
from cefito.data.prepared import PreparedDataset, open_dataset, write_dataset
from cefito.data.vocabulary import Action, Task, Taxonomy
from cefito.data.windows import Windows, cut_windows

__all__ = [
    "Action",
    "Annotations",
    "PreparedDataset",
    "Step",
    "Task",
    "Taxonomy",
    "Video",
    "Windows",
    "cut_windows",
    "open_dataset",
    "read_annotations",
    "write_dataset",
]
