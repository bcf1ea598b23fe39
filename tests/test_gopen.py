from __future__ import annotations

import importlib
import io
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from webdataset.errors import CommandError, MissingShardError, SecurityError

module = importlib.import_module("webdataset.gopen")
gopen = module.gopen


@pytest.fixture
def secure(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")


@pytest.fixture
def schemes():
    before = dict(module.gopen_schemes)
    yield module.gopen_schemes
    module.gopen_schemes.clear()
    module.gopen_schemes.update(before)


def test_every_kind_of_local_name_opens(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"data")
    for url in (str(path), path, f"file:{path}", f"file://{path}", f"FILE:{path}", str(path).encode()):
        with gopen(url) as stream:
            assert stream.read() == b"data"
            assert isinstance(stream, io.BufferedReader)


def test_writing_and_reading_back(tmp_path):
    with gopen(f"{tmp_path}/a", "wb") as stream:
        stream.write(b"x")
    with module.reader(f"{tmp_path}/a") as stream:
        assert stream.read() == b"x"


@pytest.mark.parametrize("mode", ["r", "w", "ab", "r+b", "rt", ""])
def test_other_modes_are_refused(mode):
    with pytest.raises(ValueError, match="rb") as raised:
        gopen("a.tar", mode)
    assert isinstance(raised.value, AssertionError)


def test_a_dash_is_standard_input_and_output():
    code = "from webdataset.gopen import gopen; gopen('-', 'wb').write(gopen('-').read()[::-1])"
    done = subprocess.run([sys.executable, "-c", code], input=b"\xff\x00a", capture_output=True, check=True)
    assert done.stdout == b"a\x00\xff"


def test_an_unknown_scheme_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="gopen_schemes") as raised:
        gopen("htpt://host/a.tar")
    assert "htpt://host/a.tar" in str(raised.value)
    with pytest.raises(ValueError, match="https:"):
        gopen("htps://host/a.tar")


def test_a_windows_path_is_a_path():
    with pytest.raises(FileNotFoundError):
        gopen(r"C:\none\a.tar")


def test_every_scheme_has_an_opener(schemes):
    assert set(schemes) >= {"pipe", "http", "https", "s3", "gs", "hf", "ais", "sftp", "scp", "ftps", "htgs"}


def test_programs_add_and_replace_schemes(schemes):
    schemes["mem"] = lambda url, mode, bufsize, **kw: io.BytesIO(f"{url} {mode} {bufsize} {kw}".encode())
    assert gopen("mem://x", bufsize=7, extra=1).read() == b"mem://x rb 7 {'extra': 1}"
    schemes["http"] = lambda url, mode, bufsize: io.BytesIO(b"mine")
    assert gopen("http://nowhere/").read() == b"mine"
    schemes["file"] = lambda url, mode, bufsize: io.BytesIO(b"filed")
    assert gopen("file:/none").read() == b"filed"
    schemes["__default__"] = lambda url, mode, bufsize: io.BytesIO(b"default")
    assert gopen("what:ever").read() == b"default"


def test_the_function_carries_the_rest_of_the_module(schemes):
    assert gopen.gopen is gopen
    assert gopen.gopen_schemes is module.gopen_schemes


def test_a_pipe_has_its_old_face():
    pipe = gopen("pipe:printf 'a\nb'")
    assert isinstance(pipe, module.Pipe)
    assert pipe.readLine() == b"a\n"
    assert pipe.read() == b"b"
    pipe.wait_for_child()
    pipe.check_status()
    assert pipe.status == 0
    pipe.close()
    with module.Pipe("exit 3", mode="r", shell=True, ignore_status=[3]) as pipe:
        assert pipe.read() == b""
    with module.Pipe(["printf", "a b"], mode="r") as pipe:
        assert pipe.read() == b"a b"
    with pytest.raises(ValueError, match="mode"):
        module.Pipe("true", shell=True)


def test_options_of_a_command_can_be_set_later():
    pipe = gopen("pipe:exit 3")
    assert module.set_options(pipe, timeout=3, ignore_errors=True)
    assert pipe.read() == b""
    assert pipe.timeout == 3
    pipe = gopen("pipe:exit 3")
    seen = []
    module.set_options(pipe, handler=lambda exn: seen.append(exn) or True)
    assert pipe.read() == b""
    assert isinstance(seen[0], CommandError)
    pipe = gopen("pipe:exit 5")
    module.set_options(pipe, ignore_status=[5])
    assert pipe.read() == b""
    assert not module.set_options(io.BytesIO(), timeout=1)


def test_words_of_the_program_are_in_the_message(monkeypatch):
    monkeypatch.setitem(module.info, "epoch", 3)
    with pytest.raises(CommandError, match="'epoch': 3"):
        gopen("pipe:exit 3").read()


@pytest.mark.parametrize(
    ("url", "rewritten"), [("gs://a/b", "/mnt/a/b"), ("xab", "yab"), ("qgs://a", "qgs://a"), ("qq", "qq")]
)
def test_urls_are_rewritten_by_the_first_rule_that_changes_them(monkeypatch, url, rewritten):
    monkeypatch.setenv("GOPEN_REWRITE", "nothing=;gs://=/mnt/;x(.*)=y\\1")
    assert module.rewrite_url(url) == rewritten


def test_a_rule_without_a_replacement_is_an_error(monkeypatch):
    monkeypatch.setenv("GOPEN_REWRITE", "gs://")
    with pytest.raises(ValueError, match="regex=replacement"):
        gopen("a.tar")


def test_ais_can_stand_in_for_other_schemes(monkeypatch, schemes):
    monkeypatch.setenv("USE_AIS_FOR", "gs:s3")
    schemes["ais"] = lambda url, mode, bufsize: io.BytesIO(url.encode())
    assert gopen("gs://b/a").read() == b"gs://b/a"
    assert gopen("s3://b/a").read() == b"s3://b/a"


def test_verbose_mode_logs_urls_without_their_secrets(monkeypatch, caplog, schemes):
    monkeypatch.setenv("GOPEN_VERBOSE", "1")
    schemes["http"] = lambda url, mode, bufsize: io.BytesIO()
    with caplog.at_level(logging.INFO):
        gopen("http://me:hidden@host/a.tar?sig=hidden")
    assert "host/a.tar" in caplog.text
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["pipe:echo", "Pipe:echo", "/etc/passwd", "file:/etc/passwd", "etc", "ais://b/a", "sftp://h/a"],
)
def test_secure_mode_runs_nothing_and_reads_no_file(secure, url):
    for mode in ("rb", "wb"):
        with pytest.raises(SecurityError):
            gopen(url, mode)


def test_secure_mode_refuses_to_rewrite(secure, monkeypatch, schemes):
    with pytest.raises(SecurityError):
        module.rewrite_url("http://h/")
    schemes["http"] = lambda url, mode, bufsize: io.BytesIO(url.encode())
    assert gopen("http://h/").read() == b"http://h/"
    monkeypatch.setenv("GOPEN_REWRITE", "http:=pipe:echo ")
    for refused in (module.rewrite_url, gopen, module.open_ranges):
        with pytest.raises(SecurityError) as raised:
            refused("http://h/")
        assert raised.value.url == "http://h/"
        assert "GOPEN_REWRITE" in raised.value.hint


def test_an_error_of_the_system_pickles_with_its_number():
    with pytest.raises(MissingShardError) as raised:
        gopen(Path("none.tar"))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.url, again.hint) == (MissingShardError, "none.tar", raised.value.hint)
