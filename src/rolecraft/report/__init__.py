"""What a screen found, for people: one self-contained page, and a table for the terminal."""

from rolecraft.report._page import write_report
from rolecraft.report._terminal import terminal_table

__all__ = ["terminal_table", "write_report"]
