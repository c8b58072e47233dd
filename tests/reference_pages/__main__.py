"""``python -m tests.reference_pages`` writes the pages; ``make docs`` calls it."""

from tests.reference_pages import write_pages

write_pages()
