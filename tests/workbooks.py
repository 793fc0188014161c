"""Excel workbooks for tests, as spreadsheet programs write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import xlsxwriter


def write_xlsx(path: Path, grid: Sequence[Sequence[str]], sheet: str = "Programme") -> None:
    """Write a grid of texts as the first sheet of a workbook; empty texts are empty cells."""
    with xlsxwriter.Workbook(path, {"strings_to_urls": False}) as workbook:
        page = workbook.add_worksheet(sheet)
        for row, cells in enumerate(grid):
            for column, cell in enumerate(cells):
                if cell:
                    page.write_string(row, column, cell)
