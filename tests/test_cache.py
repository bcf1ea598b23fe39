from __future__ import annotations

import io
import os
import pickle
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests_support import numbered, tar_bytes
from webdataset import cache
from webdataset.base.reports import Report
from webdataset.base.settings import settings
from webdataset.cache import (
    FileCache,
    LRUCleanup,
    StreamingOpen,
    cached_tarfile_samples,
    cached_tarfile_to_samples,
    cached_url_opener,
    cbors_to_samples,
    download,
    get_file_cached,
    islocal,
    lru_cleanup,
    unique_cache_name,
    url_to_cache_name,
)
from webdataset.errors import SecurityError, ShardError, StorageError
from webdataset.handlers import ignore_and_continue
from webdataset.storage.cache.folder import open_in_use

TAR = tar_bytes(numbered(3))


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(TAR)
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def counting(shard, log):
    """A command that writes the shard and notes that it ran."""
    return f"pipe:echo ran >> {log}; cat {shard}"


def runs(log):
    return len(log.read_text().splitlines()) if log.exists() else 0


def shown(folder):
    """What lies there without looking behind the dots, and that nothing half done does."""
    names = sorted(os.listdir(folder))
    assert [name for name in names if name.endswith((".temp", ".lock"))] == []
    return [name for name in names if not name.startswith(".")]


def read(source):
    with source["stream"] as stream:
        return stream.read()


# -- names -------------------------------------------------------------------------------------------


def test_what_is_local():
    assert [islocal(url) for url in ("a.tar", "file:a.tar", "http://h/a", "pipe:cat a")] == [True, True, False, False]


# -- opening without a cache ---------------------------------------------------------------------------


def test_streaming_opens_urls_and_dicts(shard):
    for item in (str(shard), {"url": str(shard), "more": 1}, shard):
        (source,) = StreamingOpen()([item])
        assert read(source) == TAR
        assert source == {"url": str(shard), "local_path": str(shard), "stream": source["stream"]}
    (source,) = StreamingOpen()([f"pipe:cat {shard}"])
    assert read(source) == TAR
    assert "local_path" not in source


def test_a_shard_that_cannot_be_opened_goes_to_the_handler(shard, folder):
    report = Report()
    with report.in_force():
        for stage in (StreamingOpen(handler=ignore_and_continue), FileCache(folder, handler=ignore_and_continue)):
            assert [read(source) for source in stage(["none.tar", str(shard), "nosuch:x", 7])] == [TAR]
        assert list(FileCache(folder, handler=ignore_and_continue)(["pipe:exit 3"])) == []
    assert report.as_dict()["shards_skipped"] == 7
    with pytest.raises(FileNotFoundError):
        list(StreamingOpen()(["none.tar"]))


# -- the cache -----------------------------------------------------------------------------------------


def test_a_shard_is_fetched_once_and_then_read_from_the_folder(shard, folder, tmp_path):
    url = counting(shard, tmp_path / "log")
    for _ in range(3):
        (source,) = FileCache(str(folder))([url])
        assert read(source) == TAR
        assert source["local_path"] == f"{folder}/{unique_cache_name(url)}"
        assert source["local_path"].endswith(os.path.basename(str(shard)))
        assert source["url"] == url
    assert runs(tmp_path / "log") == 1
    assert shown(folder) == [unique_cache_name(url)]
    assert os.stat(source["local_path"]).st_mode & 0o777 == 0o600


def test_a_stage_of_its_own_gives_shards_that_are_there(shard, folder, tmp_path):
    """A program may open the file by its path, before or without reading the stream."""
    urls = [counting(shard, tmp_path / "log") + f" # {n}" for n in range(3)]
    stages = [FileCache(folder), lambda data: cached_url_opener(data, cache_dir=folder)]
    for stage in stages:
        for source in stage({"url": url} for url in urls):
            assert Path(source["local_path"]).read_bytes() == TAR
            source["stream"].close()
    assert runs(tmp_path / "log") == 3


def test_a_stage_of_its_own_that_cannot_keep_a_shard_names_no_place(shard, tmp_path):
    (tmp_path / "file").touch()
    cache = FileCache(tmp_path / "file" / "cache", always=True)
    with pytest.warns(UserWarning, match="streamed"):
        (source,) = cache([str(shard)])
    assert "local_path" not in source
    assert read(source) == TAR


def test_local_shards_are_used_in_place_unless_told_otherwise(shard, folder):
    (source,) = FileCache(folder)([str(shard)])
    assert source["local_path"] == str(shard)
    source["stream"].close()
    assert not folder.exists()
    (source,) = cached_url_opener([str(shard)], cache_dir=folder, always=True)
    assert read(source) == TAR
    assert source["local_path"].startswith(str(folder))


def test_names_of_the_user_are_honoured_but_stay_in_the_folder(shard, folder):
    cache = FileCache(folder, url_to_name=lambda url: "sub/mine.tar")
    assert cache.get_file(f"pipe:cat {shard}") == f"{folder}/sub/mine.tar"
    for name in ("../out.tar", "/tmp/out.tar", "a/../../out.tar", "", "."):
        with pytest.raises(SecurityError):
            FileCache(folder, url_to_name=lambda url, name=name: name).get_file(f"pipe:cat {shard}")


def test_what_is_no_tar_archive_is_not_kept(folder):
    url = "pipe:echo '<html>login</html>'"
    with pytest.raises(ShardError) as caught:
        list(FileCache(folder)([url]))
    assert (caught.value.url, isinstance(caught.value, ValueError)) == (url, True)
    assert shown(folder) == []


def test_a_command_that_fails_after_writing_everything_leaves_nothing(shard, folder):
    with pytest.raises(StorageError) as caught:
        [read(source) for source in FileCache(folder)([f"pipe:cat {shard}; exit 3"])]
    assert caught.value.status == 3
    assert shown(folder) == []


def test_a_damaged_file_in_the_folder_is_fetched_again(shard, folder):
    cache = FileCache(folder)
    path = cache.get_file(f"pipe:cat {shard}")
    with open(path, "wb") as file:
        file.write(b"rubbish")
    (source,) = cache([f"pipe:cat {shard}"])
    assert read(source) == TAR


def test_a_link_in_the_folder_is_not_followed(shard, folder, tmp_path):
    url = f"pipe:cat {shard}"
    folder.mkdir()
    (tmp_path / "secret.tar").write_bytes(tar_bytes([("s.txt", b"secret")]))
    (folder / unique_cache_name(url)).symlink_to(tmp_path / "secret.tar")
    (source,) = FileCache(folder)([url])
    assert read(source) == TAR
    assert b"secret" in (tmp_path / "secret.tar").read_bytes()


FETCH = """
import sys
from webdataset.cache import FileCache
with next(FileCache(sys.argv[1])([sys.argv[2]]))["stream"] as stream:
    sys.stdout.write(str(len(stream.read())))
"""


def test_many_processes_fetch_a_shard_once(shard, folder, tmp_path):
    url = f"pipe:echo ran >> {tmp_path}/log; sleep 0.3; cat {shard}"
    processes = [subprocess.Popen([sys.executable, "-c", FETCH, folder, url], stdout=subprocess.PIPE) for _ in range(4)]
    assert [int(process.communicate()[0]) for process in processes] == [len(TAR)] * 4
    assert runs(tmp_path / "log") == 1
    assert shown(folder) == [unique_cache_name(url)]


def test_many_threads_fetch_a_shard_once(shard, folder, tmp_path):
    url = f"pipe:echo ran >> {tmp_path}/log; sleep 0.1; cat {shard}"
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: FileCache(folder).get_file(url), range(8)))) == 1
    assert runs(tmp_path / "log") == 1


def test_a_killed_process_leaves_nothing_that_could_be_read_wrongly(shard, folder, tmp_path):
    pid = tmp_path / "pid"
    url = f"pipe:echo $$ > {pid}; head -c 1000 {shard}; test -e {tmp_path}/go || sleep 1000; tail -c +1001 {shard}"
    process = subprocess.Popen([sys.executable, "-c", FETCH, folder, url])
    while not (folder.exists() and any(name.endswith(".temp") for name in os.listdir(folder))):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    while not (pid.exists() and pid.read_text().endswith("\n")):
        pass
    os.killpg(int(pid.read_text()), signal.SIGKILL)  # the command writes nothing, so it did not notice
    assert unique_cache_name(url) not in os.listdir(folder)
    (tmp_path / "go").touch()
    (source,) = FileCache(folder)([url])
    assert read(source) == TAR
    assert shown(folder) == [unique_cache_name(url)]


def test_the_folder_stays_within_its_limit_and_the_least_recently_used_goes_first(tmp_path, folder):
    urls = []
    for name in "abcd":
        (tmp_path / f"{name}.tar").write_bytes(TAR)
        urls.append(f"pipe:cat {tmp_path}/{name}.tar")
    cache = FileCache(folder, cache_size=2 * len(TAR))
    paths = []
    for index, url in enumerate(urls):
        paths.append(cache.get_file(url))
        if index == 2:
            cache.get_file(urls[1])  # used again, so c is older than b now
    assert [os.path.exists(path) for path in paths] == [False, True, False, True]


def test_a_shard_in_use_stays(tmp_path, folder):
    folder.mkdir()
    for name in ("old", "new"):
        (folder / name).write_bytes(b"x" * 1000)
    with open_in_use(str(folder / "old")):
        lru_cleanup(str(folder), 1000, keyfn=lambda path: path.endswith("new"))
        assert shown(folder) == ["old"]
    lru_cleanup(str(folder), 0)
    assert shown(folder) == []


def test_cleaning_happens_once_per_interval(folder):
    folder.mkdir()
    cleaner = LRUCleanup(str(folder), cache_size=10, interval=1000)
    for _ in range(2):
        (folder / "x").write_bytes(b"x" * 100)
        cleaner.cleanup()
    assert shown(folder) == ["x"]
    LRUCleanup(str(folder / "none")).cleanup()


@pytest.fixture
def small_disk():
    """No file may grow beyond 1,000 bytes, which fails as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_means_streaming_with_one_warning(shard, folder, small_disk):
    cache = FileCache(folder)
    with pytest.warns(UserWarning, match="streamed") as caught:
        found = [read(source) for source in cache([f"pipe:cat {shard}"] * 3)]
    assert found == [TAR] * 3
    assert len(caught) == 1
    assert shown(folder) == []


def test_a_folder_that_cannot_be_made_means_streaming_with_one_warning(shard, tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="streamed"):
        (source,) = FileCache(tmp_path / "file" / "cache")([f"pipe:cat {shard}"])
    assert read(source) == TAR


def test_the_folder_and_its_size_come_from_the_environment(shard, tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "env"))
    assert get_file_cached(f"pipe:cat {shard}").startswith(str(tmp_path / "env"))


def test_old_names_say_what_the_environment_says(monkeypatch):
    assert (cache.default_cache_dir, cache.default_cache_size, cache.verbose_cache) == ("./_cache", 1e18, 0)
    monkeypatch.setenv("WDS_CACHE_SIZE", "1e9")
    assert cache.default_cache_size == 10**9
    with pytest.raises(AttributeError):
        _ = cache.nothing


def test_a_cache_pickles(folder):
    assert pickle.loads(pickle.dumps(FileCache(folder, cache_size=10))).cache_dir == str(folder)


def test_secure_mode_closes_the_cache_too(shard, folder, monkeypatch):
    settings.secure = True
    try:
        for url in (str(shard), f"pipe:cat {shard}"):
            with pytest.raises(SecurityError):
                list(FileCache(folder)([url]))
            with pytest.raises(SecurityError):
                list(StreamingOpen()([url]))
            with pytest.raises(SecurityError):
                FileCache(folder).get_file(url)
    finally:
        settings.secure = None
    assert not folder.exists()


def test_samples_come_through_the_cache(shard, folder):
    url = f"pipe:cat {shard}"
    samples = list(cached_tarfile_samples([{"url": url}], cache_dir=folder))
    assert len(samples) == 3
    assert samples[0]["__url__"] == url
    assert samples[0]["__local_path__"].startswith(str(folder))
    assert list(cached_tarfile_to_samples(cache_dir=str(folder))([{"url": url}])) == samples


def test_a_download_appears_when_it_is_complete(shard, tmp_path):
    download(f"pipe:cat {shard}", str(tmp_path / "out.tar"))
    assert (tmp_path / "out.tar").read_bytes() == TAR
    with pytest.raises(StorageError):
        download(f"pipe:cat {shard}; exit 1", str(tmp_path / "bad.tar"))
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "out.tar"]


def test_records_of_cbor_become_samples(tmp_path):
    import cbor2

    (tmp_path / "a.cbors").write_bytes(cbor2.dumps({"__key__": "a", "x": 1}) + cbor2.dumps({"__key__": "b", "x": 2}))
    samples = list(cbors_to_samples()([str(tmp_path / "a.cbors")]))
    assert [(sample["__key__"], sample["x"]) for sample in samples] == [("a", 1), ("b", 2)]
    with pytest.raises(ShardError, match="CBOR"):
        list(cbors_to_samples()([f"pipe:head -c 20 {tmp_path}/a.cbors"]))


def test_an_archive_without_an_end_marker_from_a_command_is_read_but_not_kept(tmp_path, folder):
    (tmp_path / "a.tar").write_bytes(tar_bytes(numbered(3), end=False))
    url = f"pipe:cat {tmp_path}/a.tar"
    (source,) = FileCache(folder, streaming=True)([url])
    assert read(source) == tar_bytes(numbered(3), end=False)
    assert shown(folder) == []
    with pytest.warns(UserWarning, match="streamed"):
        (source,) = FileCache(folder)([url])
    assert "local_path" not in source
    assert read(source) == tar_bytes(numbered(3), end=False)
    assert shown(folder) == []


def test_a_validator_of_the_users_sees_the_whole_before_anything_is_read(shard, folder):
    sizes = []
    cache = FileCache(folder, validator=lambda path: sizes.append(os.path.getsize(path)) or len(sizes) > 1)
    with pytest.raises(ShardError) as caught:
        cache.open(f"pipe:cat {shard}")
    assert caught.value.url == f"pipe:cat {shard}"
    assert sizes == [len(TAR)]
    assert read(cache.open(f"pipe:cat {shard}")) == TAR


def test_standard_input_is_not_kept(shard, folder):
    opened = "FileCache(sys.argv[1]).open('-')['stream']"
    program = f"import sys; from webdataset.cache import FileCache; print(len({opened}.read()))"
    for data in (TAR, TAR[:512]):
        done = subprocess.run([sys.executable, "-c", program, folder], input=data, stdout=subprocess.PIPE, check=True)
        assert int(done.stdout) == len(data)
    assert not folder.exists()


def test_what_others_put_into_the_folder_is_used(shard, folder):
    folder.mkdir()
    (folder / "a.tar").write_bytes(TAR)
    (source,) = FileCache(folder, url_to_name=url_to_cache_name)(["http://nowhere.invalid/a.tar"])
    assert read(source) == TAR


def test_no_secret_is_written_into_the_folder(folder, monkeypatch):
    from webdataset.gopen import gopen_schemes

    monkeypatch.setitem(gopen_schemes, "mem", lambda url, mode, bufsize: io.BytesIO(TAR))
    url = "mem://me:hunter2@h/a.tar?X-Amz-Signature=hunter2&token=hunter2"
    assert read(FileCache(folder).open(url)) == TAR
    everything = [name.encode() + (folder / name).read_bytes() for name in os.listdir(folder)]
    assert len(everything) == 2
    assert not any(b"hunter2" in part for part in everything)


def test_a_bad_file_stays_until_a_good_one_is_there(folder):
    folder.mkdir()
    (folder / "mine.tar").write_bytes(b"my thesis")
    cache = FileCache(folder, url_to_name=lambda url: "mine.tar")
    with pytest.raises(StorageError):
        cache.open("pipe:exit 1")
    assert (folder / "mine.tar").read_bytes() == b"my thesis"


# -- other versions ----------------------------------------------------------------------------------


def opened(url, **options):
    with FileCache(**options).open(url)["stream"] as stream:
        return stream.read()


def test_a_shard_that_has_changed_is_fetched_again_if_asked_to_look(nginx, tmp_path, monkeypatch):
    first, second = tar_bytes(numbered(3)), tar_bytes(numbered(5))
    url = nginx.put("changing.tar", first)
    assert opened(url, cache_dir=str(tmp_path)) == first
    nginx.put("changing.tar", second)
    assert opened(url, cache_dir=str(tmp_path)) == first
    assert opened(url, cache_dir=str(tmp_path), check=True) == second
    nginx.put("changing.tar", first)
    monkeypatch.setenv("WDS_CACHE_CHECK", "1")
    assert opened(url, cache_dir=str(tmp_path)) == first
    assert FileCache(str(tmp_path)).get_file(url) == FileCache(str(tmp_path), check=False).get_file(url)


def test_a_shard_that_is_the_same_is_not_fetched_again(nginx, tmp_path):
    url = nginx.put("same.tar", tar_bytes(numbered(3)))
    cache = FileCache(str(tmp_path), check=True)
    path = cache.get_file(url)
    number = os.stat(path).st_ino
    assert cache.get_file(url) == path
    assert os.stat(path).st_ino == number


def test_a_copy_is_used_when_the_server_is_gone_or_cannot_say(nginx, tmp_path):
    data = tar_bytes(numbered(3))
    url = nginx.put("gone.tar", data)
    command = f"pipe:cat {nginx.files / 'gone.tar'}"
    for each in (url, command):
        assert opened(each, cache_dir=str(tmp_path), check=True) == data
    (nginx.files / "gone.tar").unlink()
    for each in (url, command):
        assert opened(each, cache_dir=str(tmp_path), check=True) == data


def test_progress_is_a_bar_of_tqdm_for_each_shard_that_is_fetched(shard, folder, capfd, tmp_path):
    url = f"pipe:cat {shard}"
    path = get_file_cached(url, cache_dir=str(folder), progress=True)
    assert Path(path).read_bytes() == Path(shard).read_bytes()
    assert f": {len(TAR) / 1000:.3g}kB [" in capfd.readouterr().err
    streamed = FileCache(str(tmp_path / "other"), progress=True, streaming=True)
    with streamed.open(url)["stream"] as stream:
        assert stream.read() == Path(shard).read_bytes()
    get_file_cached(url, cache_dir=str(folder), progress=True)
    download(url, str(tmp_path / "copy.tar"), progress=True)
    assert capfd.readouterr().err.count("00B [") == 2  # and none for the shard that was there
    assert [problem for _, problem in cache.verify(str(folder), progress=True)] == [None]
    assert "verify: 100%" in capfd.readouterr().err
    assert len(list(cache.verify(str(folder)))) == 1
    assert capfd.readouterr().err == ""
