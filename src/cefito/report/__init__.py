"""One-file reports: what was trained on what, how good it is, where it goes wrong, and examples.

A report is first a record with every number (`RunReport`, `ComparisonReport`), which is the JSON;
the page is rendered from that record alone.
"""

from cefito.report.comparison_report import report_comparison
from cefito.report.page import rendered, save_report
from cefito.report.run_report import report_run
from cefito.report.schema import ComparisonReport, RunReport

__all__ = [
    "ComparisonReport",
    "RunReport",
    "rendered",
    "report_comparison",
    "report_run",
    "save_report",
]
