"""One-file reports: a record with every number, as JSON or rendered as a page."""

from cefito.report.page import rendered, save_report
from cefito.report.run_report import report_comparison, report_run
from cefito.report.schema import ComparisonReport, RunReport

__all__ = [
    "ComparisonReport",
    "RunReport",
    "rendered",
    "report_comparison",
    "report_run",
    "save_report",
]
