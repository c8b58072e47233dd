"""What every run of the tests says: which code ran the hot loops."""

from logstore import build_info


def pytest_terminal_summary(terminalreporter):
    info = build_info()
    code = "compiled" if info.is_compiled else "plain Python"
    terminalreporter.write_line(f"hot loops: {code} ({info.reason}); checksums: {info.crc32c}")
