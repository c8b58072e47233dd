"""A reader that opened a segment while retention was renaming its files met no file: the .log already had its
new name, which the segment told only when all of its files had been renamed."""

from logstore import Log
from logstore.config import TopicConfig
from logstore.files import OsFiles


class Renaming(OsFiles):
    """Calls back when a .log file has just been renamed."""

    def __init__(self):
        self.renamed = lambda: None

    def rename(self, old, new):
        super().rename(old, new)
        if old.endswith(".log"):
            self.renamed()


def test_a_segment_is_read_while_its_files_are_renamed(tmp_path):
    files, seen = Renaming(), []
    with Log.open(tmp_path / "t-0", config=TopicConfig(retention_ms=-1), files=files) as log:
        for value in (b"a", b"b"):
            log.extend([value])
            log.roll()
        segment = log._current_view().segments[0]
        segment.forget_files()
        files.renamed = lambda: seen.append(segment.read_at(0, 8))
        log.delete_before(1)
        assert seen == [bytes(8)]
