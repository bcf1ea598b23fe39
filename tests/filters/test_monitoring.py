import io
import subprocess
import sys

from webdataset.filters import info, log_keys

SAMPLES = [{"__key__": key, "txt": "x" * 100} for key in "abcde"]


def shown(*args, **kw):
    stream = io.StringIO()
    assert list(info(*args, stream=stream, **kw)(SAMPLES)) == SAMPLES
    return stream.getvalue()


def test_info_shows_the_first_samples():
    assert shown(n=1, name="raw") == "--- raw\n__key__ 'a'\ntxt '" + "x" * 49 + "\n"


def test_info_shows_every_nth():
    assert shown("{__key__}", n=1, every=2) == "a\nb\nd\n"


def test_info_cuts_values():
    assert shown(n=1, width=5) == "--- \n__key__ 'a'\ntxt 'xxxx\n"


def test_info_shows_other_samples_too_and_uses_stderr(capsys):
    assert list(info()([(1, 2)])) == [(1, 2)]
    assert capsys.readouterr().err == "--- \n(1, 2)\n"


def test_log_keys_appends_lines(tmp_path):
    log = tmp_path / "keys"
    samples = [{"__key__": "a"}, {"__key__": "b", "__worker__": 3, "__rank__": 1}]
    assert list(log_keys(str(log))(samples)) == samples
    list(log_keys(str(log))(samples[:1]))
    assert log.read_text() == "0\tNone\tNone\ta\n1\t3\t1\tb\n0\tNone\tNone\ta\n"


def test_lines_of_several_processes_stay_whole(tmp_path):
    code = (
        "import sys; from webdataset.filters import log_keys\n"
        "list(log_keys(sys.argv[1])([{'__key__': sys.argv[2] * 2000}] * 200))"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log"), name]) for name in "xyz"]
    assert [child.wait() for child in children] == [0, 0, 0]
    keys = [line.split("\t")[3] for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(keys) == ["x" * 2000] * 200 + ["y" * 2000] * 200 + ["z" * 2000] * 200
