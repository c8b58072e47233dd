"""``python -m tests.pages`` writes the pages; ``make docs`` calls it."""

from tests.pages import write_pages

write_pages()
