"""Code that changes after a run was planned makes no output of it, nor does it when it has changed back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runs_support import PYTHON, make_inputs


def ran(*words: object) -> subprocess.CompletedProcess[str]:
    """A command, with modules of the current folder."""
    return subprocess.run([*PYTHON, *map(str, words)], capture_output=True, text=True, check=False)


SPOILS_ITSELF = """
import os

def transform(sample):
    if sample["__key__"].startswith("001") and not os.path.exists("spoilt"):
        open("spoilt", "w").close()
        with open("code.py") as file:
            text = file.read()
        with open("code.py", "w") as file:
            file.write(text.replace("b'right'", "b'wrong'"))
    sample["new"] = b'right'
    return sample
"""


def test_code_that_changes_while_it_is_used_ends_the_run(here: Path) -> None:
    make_inputs(here, 3)
    (here / "code.py").write_text(SPOILS_ITSELF)
    line = ("map", "-l", "code.py", "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local", "--workers", "1")
    stopped = ran(*line)
    assert (stopped.returncode, "has changed" in stopped.stderr) == (1, True)
    assert [path.name for path in here.glob("out-*")] == ["out-000.tar"]
    (here / "code.py").write_text(SPOILS_ITSELF + "\n# a comment changes nothing that is made\n")
    assert ran(*line).returncode == 0
    (here / "code.py").write_text(SPOILS_ITSELF)
    assert ran(*line).returncode == 0
    assert not any(b"wrong" in path.read_bytes() for path in here.glob("out-*"))


@pytest.mark.parametrize("code", [("-C", "import helpers", "-c", "cls = helpers.N"), ("-m", "helpers:transform")])
def test_a_run_is_not_resumed_with_another_helper(here: Path, code: tuple[str, ...]) -> None:
    make_inputs(here, 3)
    source = "N = 1\ndef transform(sample):\n    return dict(sample, cls=N)\n"
    (here / "helpers.py").write_text(source)
    assert ran("map", *code, "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local").returncode == 0
    (run,) = (here / ".runs").iterdir()
    (here / "out-001.tar").unlink()
    (here / "helpers.py").write_text(source.replace("1", "2"))
    refused = ran("jobs", "resume", run)
    assert (refused.returncode, str(here / "helpers.py") in refused.stderr) == (1, True)
    assert not (here / "out-001.tar").exists()
    (here / "helpers.py").write_text(source)
    assert ran("jobs", "resume", run).returncode == 0
    assert (here / "out-001.tar").exists()


FUNCTION = """
import helpers, webdataset as wds
if __name__ == "__main__":
    assert all(done.ok for done in wds.jobs(helpers.copied, [(f"in-00{n}.tar", f"out-00{n}.tar") for n in range(3)]))
"""


def test_a_function_of_a_module_is_not_resumed_with_another_one(here: Path) -> None:
    make_inputs(here, 3)
    source = "import shutil\ndef copied(source, target):\n    shutil.copy(source, target)\n"
    (here / "helpers.py").write_text(source)
    (here / "program.py").write_text(FUNCTION)
    subprocess.run([sys.executable, "program.py"], check=True)
    (run,) = (here / ".runs").iterdir()
    (here / "out-001.tar").unlink()
    (here / "helpers.py").write_text(source.replace("source, target)\n", "target, source)\n"))
    refused = ran("jobs", "resume", run)
    assert (refused.returncode, str(here / "helpers.py") in refused.stderr) == (1, True)
    (here / "helpers.py").write_text(source)
    subprocess.run([sys.executable, "program.py"], check=True)
    assert (here / "out-001.tar").read_bytes() == (here / "in-001.tar").read_bytes()


def test_what_a_process_has_imported_may_change(here: Path) -> None:
    """It goes on with what it has; editing a module ends no run that does not read it any more."""
    make_inputs(here, 3)
    (here / "helpers.py").write_text("N = 1\n")
    code = "open('helpers.py', 'w').write('N = 2') if _['__key__'].startswith('001') else 0\ncls = helpers.N"
    line = ("map", "-C", "import helpers", "-c", code, "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local")
    assert ran(*line, "--workers", "1").returncode == 0
    (here / "helpers.py").write_text("N = 1\n")
    assert "3 done" in ran(*line).stderr


EDITS = """
import importlib, warnings, helpers, webdataset as wds

def f(source, target):
    with open(target, "w") as file:
        file.write(str(helpers.N))

def done():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        count = len(list(wds.jobs(f, [("in-000.tar", "out")])))
    with open("out") as file:
        return count, file.read(), [str(each.message) for each in found]

if __name__ == "__main__":
    print(done())
    with open("helpers.py", "w") as file:
        file.write("N = 222\\n")
    print(done())
    {more}
"""


@pytest.mark.parametrize("reloads", [True, False])
def test_a_module_that_was_edited_after_its_import_counts_as_it_was(here: Path, reloads: bool) -> None:
    """A notebook goes on with what it has imported; what it makes with that is not called that of the new code."""
    make_inputs(here, 1)
    (here / "helpers.py").write_text("N = 1\n")
    more = "importlib.reload(helpers); print(done())" if reloads else ""
    (here / "program.py").write_text(EDITS.replace("{more}", more))
    first, edited, *reloaded = subprocess.check_output([sys.executable, "program.py"], text=True).splitlines()
    assert first == "(1, '1', [])"
    assert edited.startswith("(0, '1', [")
    assert str(here / "helpers.py") in edited, "it is said"
    assert reloaded == (["(1, '222', [])"] if reloads else [])
    (here / "program.py").write_text(EDITS.replace("{more}", "").partition('    with open("helpers')[0])
    [again] = subprocess.check_output([sys.executable, "program.py"], text=True).splitlines()
    assert again.startswith("(0, '222'" if reloads else "(1, '222'")
