"""Records: what every experiment leaves behind, and all that tables and plots read.

A folder `results/<experiment>/` holds `records.csv`, one measured number per line in the columns `COLUMNS`, and
`runs.json`, how those numbers were made. One schema serves every figure and table of the paper. This package never
imports jax, so a report is made without it.
"""

from nbf_paper.records.locks import alone
from nbf_paper.records.schema import (
    ALL,
    COLUMNS,
    Record,
    RecordError,
    Row,
    Run,
    package_versions,
    run_key,
)
from nbf_paper.records.store import add, completed, read_records, read_runs, records_path, write_records
from nbf_paper.records.summaries import Over, Summary, summary

__all__ = [
    "ALL", "COLUMNS", "Over", "Record", "RecordError", "Row", "Run", "Summary", "add", "alone", "completed",
    "package_versions", "read_records", "read_runs", "records_path", "run_key", "summary", "write_records",
]  # fmt: skip
