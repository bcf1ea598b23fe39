"""What is looked at, listed and deleted is what was written: in the same store, with the same options."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from servers.aistore import Bucket
from servers.doubles import Double, Question, Reply, ranged
from servers.moto import S3Server
from servers.object_stores import asked
from tests_support import numbered, tar_bytes
from webdataset.cli import main
from webdataset.errors import StorageError
from webdataset.gopen import gopen, gopen_schemes, open_ranges
from webdataset.indices.files import load_index
from webdataset.shardlists import expand_urls
from webdataset.storage.options import StorageOptions
from webdataset.storage.removing import remove

SHARD = tar_bytes(numbered(2))


def put(url: str, data: bytes = SHARD, **options: Any) -> None:
    with gopen(url, "wb", **options) as stream:
        stream.write(data)


def names(server: S3Server, bucket: str) -> list[str]:
    """What a bucket has, asked of the server itself."""
    return sorted(url.removeprefix(f"{bucket}/") for url, _ in server.client(bucket).list())


def write(pattern: str, samples: int, **options: Any) -> None:
    with wds.ShardWriter(pattern, maxcount=1, verbose=0, **options) as sink:
        for i in range(samples):
            sink.write({"__key__": str(i), "cls": i})


@pytest.fixture
def here(moto_server: S3Server, nobody: None, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The store of the environment."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    return moto_server


@pytest.fixture
def there(here: S3Server, other_moto_server: S3Server) -> S3Server:
    """Another store, reached with options."""
    return other_moto_server


@pytest.fixture
def bucket(here: S3Server, there: S3Server) -> str:
    """A bucket that both stores have."""
    url = f"s3://{here.name()}"
    for server in (here, there):
        asked(server.client(url), "PUT", server.address(url))
    return url


def options_of(server: S3Server) -> dict[str, Any]:
    return {"endpoint": f"http://127.0.0.1:{server.port}"}


OLD = ["a-0.tar", "a-0.tar.wdx", "a-1.tar", "a-1.tar.wdx", "a-2.tar", "a-2.tar.wdx"]


def put_old_set(bucket: str, server: S3Server) -> None:
    for name in OLD:
        put(f"{bucket}/{name}", storage_options=options_of(server))


# -- options ----------------------------------------------------------------------------------------


def test_an_older_set_is_replaced_in_the_store_of_the_options(here: S3Server, there: S3Server, bucket: str) -> None:
    for server in (here, there):
        put_old_set(bucket, server)
    write(f"{bucket}/a-%d.tar", 1, overwrite=True, storage_options=options_of(there))
    assert names(there, bucket) == ["a-0.tar"]
    assert names(here, bucket) == OLD


def test_an_older_set_is_replaced_in_the_store_of_a_commands_options(
    here: S3Server, there: S3Server, bucket: str, tmp_path: Path
) -> None:
    put_old_set(bucket, there)
    put(f"{bucket}/a-1.tar")
    (tmp_path / "x.cls").write_text("1")
    words = ["create", str(tmp_path), "-o", f"{bucket}/a-%d.tar", "--force"]
    assert main([*words, "--storage", f"endpoint=http://127.0.0.1:{there.port}"]) == 0
    assert names(there, bucket) == ["a-0.tar"]
    assert names(here, bucket) == ["a-1.tar"]


def test_a_shard_that_is_deleted_after_its_command_is_the_one_that_was_written(
    here: S3Server, there: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_old_set(bucket, here)
    (tmp_path / "in.tar").write_bytes(SHARD)
    words = ["split", str(tmp_path / "in.tar"), "--maxcount", "1", "--post", "true", "--delete", "--force", "-o"]
    assert main([*words, f"{bucket}/a-%d.tar", "--storage", f"endpoint=http://127.0.0.1:{there.port}"]) == 0
    assert (names(here, bucket), names(there, bucket)) == (OLD, [])
    (tmp_path / "new").mkdir()
    (tmp_path / "a-0.tar").write_bytes(b"other")
    monkeypatch.setenv("GOPEN_REWRITE", f"{tmp_path}/a={tmp_path}/new/a")
    assert main([*words, f"{tmp_path}/a-%d.tar"]) == 0
    assert (tmp_path / "a-0.tar").read_bytes() == b"other"
    assert list((tmp_path / "new").iterdir()) == []


def test_an_index_is_replaced_in_the_store_of_the_options(here: S3Server, there: S3Server, bucket: str) -> None:
    for server in (here, there):
        put(f"{bucket}/a.tar.wdx", b"of another shard", storage_options=options_of(server))
    with wds.TarWriter(f"{bucket}/a.tar", index=True, storage_options=options_of(there)) as sink:
        sink.write({"__key__": "a", "cls": 1})
    assert gopen(f"{bucket}/a.tar.wdx").read() == b"of another shard"
    options = StorageOptions(options_of(there))
    assert load_index(f"{bucket}/a.tar.wdx", options).samples == 1


@pytest.mark.parametrize("overwrite", ["warn", False])
def test_only_the_store_of_the_options_is_looked_at(
    here: S3Server, there: S3Server, bucket: str, overwrite: Any
) -> None:
    """A warning would be an error here, as the shards of the other store would be with overwrite=False."""
    put_old_set(bucket, here)
    write(f"{bucket}/a-%d.tar", 1, overwrite=overwrite, storage_options=options_of(there))
    assert names(there, bucket) == ["a-0.tar"]


def answered(question: Question, files: dict[str, bytes]) -> Reply:
    """What a web server says that keeps these files."""
    if question.method == "PUT":
        files[question.raw_path] = question.body
    data = files.get(question.raw_path)
    if question.method == "DELETE":
        files.pop(question.raw_path, None)
    return Reply(404) if data is None else Reply(200, data, {"ETag": f'"{len(data)}"'})


def test_files_of_a_web_server_are_looked_at_and_deleted_with_the_options_they_were_written_with() -> None:
    files = {f"/a-{number}.tar": SHARD for number in range(3)}

    def answer(question: Question) -> Reply:
        if question.headers.get("x-key") != "hush":
            return Reply(403)
        return answered(question, files)

    with Double(answer) as server:
        write(f"{server.url}/a-%d.tar", 1, overwrite=True, storage_options={"headers": {"X-Key": "hush"}})
        assert list(files) == ["/a-0.tar"]
        assert {question.headers.get("x-key") for question in server.questions} == {"hush"}


def test_a_set_is_written_and_replaced_where_its_web_server_leads() -> None:
    """What the options say of the first server is not told to the other one."""
    files = {f"/a-{number}.tar": SHARD for number in range(3)}

    def stored(question: Question) -> Reply:
        return answered(question, files)

    def led(question: Question) -> Reply:
        return Reply(307, b"", {"Location": f"{other.url}{question.raw_path}"})

    with Double(stored) as other, Double(led) as server:
        write(f"{server.url}/a-%d.tar", 1, overwrite=True, storage_options={"headers": {"X-Key": "hush"}})
        assert list(files) == ["/a-0.tar"]
        assert [sample["cls"] for sample in wds.WebDataset(f"{server.url}/a-0.tar", shardshuffle=False)] == [b"0"]
        assert {question.headers.get("x-key") for question in other.questions} == {None}


def test_a_shard_whose_url_has_parameters_is_not_taken_for_its_index() -> None:
    """Its index would have the same path, which is all that most servers look at."""
    files = {f"/a-{number}.tar": SHARD for number in range(2)}

    def answer(question: Question) -> Reply:
        if question.method == "PUT":
            return Reply(403)
        data = files.get(question.raw_path)
        if question.method == "DELETE":
            files.pop(question.raw_path, None)
        return Reply(404) if data is None else ranged(question, data, '"1"')

    with Double(answer) as server:
        with pytest.raises(StorageError):
            write(f"{server.url}/a-%d.tar?signature=abc", 1, overwrite=True)
        with pytest.raises(StorageError):
            wds.index(f"{server.url}/a-0.tar?signature=abc", where="beside")
        changes = [question.raw_path for question in server.questions if question.method in ("PUT", "DELETE")]
    assert changes == ["/a-0.tar"]  # the attempt to write it
    assert list(files) == ["/a-0.tar", "/a-1.tar"]


# -- GOPEN_REWRITE ------------------------------------------------------------------------------------


def test_a_rewritten_set_is_replaced_where_it_was_written(
    here: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule would lead on if it were applied to its own result."""
    for folder in ("", "new/", "new/new/"):
        for name in OLD:
            put(f"{bucket}/{folder}{name}")
    monkeypatch.setenv("GOPEN_REWRITE", f"{bucket}/={bucket}/new/")
    write(f"{bucket}/a-%d.tar", 1, overwrite=True, index="wdx")
    expected = [*OLD, "new/a-0.tar", "new/a-0.tar.wdx", *(f"new/new/{name}" for name in OLD)]
    assert names(here, bucket) == sorted(expected)


def test_a_rewritten_local_set_is_replaced_where_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path / "new" / "new", tmp_path / "new", tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        for name in OLD:
            (folder / name).write_bytes(SHARD)
    monkeypatch.setenv("GOPEN_REWRITE", f"{tmp_path}/={tmp_path}/new/")
    write(f"{tmp_path}/a-%d.tar", 1, overwrite=True, index="wdx")
    assert sorted(path.name for path in tmp_path.glob("*.*")) == OLD
    assert sorted(path.name for path in (tmp_path / "new").glob("*.*")) == ["a-0.tar", "a-0.tar.wdx"]
    assert sorted(path.name for path in (tmp_path / "new/new").glob("*.*")) == OLD


def test_a_pattern_lists_the_place_that_its_url_is_rewritten_to(
    here: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-0.tar", "a-1.tar"):
        put(f"{bucket}/{name}")
        put(f"{bucket}/moved/b{name}")
        (tmp_path / f"c{name}").write_bytes(SHARD)
    monkeypatch.setenv("GOPEN_REWRITE", f"s3://data/={bucket}/moved/;disk:={tmp_path}/;/data/={bucket}/moved/")
    stored = ["s3://data/ba-0.tar", "s3://data/ba-1.tar"]
    assert expand_urls("s3://data/*.tar") == expand_urls("s3://data/") == stored
    assert expand_urls("disk:*.tar") == ["disk:ca-0.tar", "disk:ca-1.tar"]
    assert expand_urls("/data/*.tar") == ["/data/ba-0.tar", "/data/ba-1.tar"]
    for pattern in ("s3://data/*.tar", "disk:*.tar", "/data/*.tar"):
        assert sum(1 for _ in wds.WebDataset(pattern, shardshuffle=False)) == 4


def test_a_pattern_whose_matches_would_lead_elsewhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-0.tar").write_bytes(SHARD)
    monkeypatch.setenv("GOPEN_REWRITE", f"{tmp_path}/a-0={tmp_path}/b-0")
    with pytest.raises(StorageError):
        expand_urls(f"{tmp_path}/*.tar")


@pytest.mark.parametrize("options", [{"cache_dir": "cache"}, {"exact": True, "shuffle_bytes": 0}], ids=str)
def test_what_is_kept_of_a_url_is_not_that_of_the_place_that_it_led_to_before(
    own_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    shards = {f"/{count}/a.tar": tar_bytes(numbered(count)) for count in (2, 3)}

    def answer(question: Question) -> Reply:
        data = shards.get(question.raw_path)
        return Reply(404) if data is None else ranged(question, data, f'"{len(data)}"')

    with Double(answer) as server:
        for count in (2, 3, 2):
            monkeypatch.setenv("GOPEN_REWRITE", f"http://data/={server.url}/{count}/")
            more = {} if "exact" in options else {"shardshuffle": False}
            assert sum(1 for _ in wds.WebDataset("http://data/a.tar", **options, **more)) == count


# -- schemes that a program opens by itself ------------------------------------------------------------


@pytest.fixture
def own_s3(monkeypatch: pytest.MonkeyPatch) -> dict[str, io.BytesIO]:
    """`s3:` is a program's own; what it was asked to write."""
    written: dict[str, io.BytesIO] = {}

    class Kept(io.BytesIO):
        def close(self) -> None:
            pass

    def opened(url: str, mode: str, bufsize: int) -> io.BytesIO:
        assert mode == "wb"
        written[url] = Kept()
        return written[url]

    monkeypatch.setitem(gopen_schemes, "s3", opened)
    return written


def test_an_index_beside_what_a_function_of_the_program_writes_is_refused_before_anything_is_written(
    here: S3Server, bucket: str, request: pytest.FixtureRequest
) -> None:
    put(f"{bucket}/a.tar.wdx")
    own_s3 = request.getfixturevalue("own_s3")
    with pytest.raises(ValueError, match="index"):
        wds.TarWriter(f"{bucket}/a.tar", index=True)
    assert own_s3 == {}
    assert names(here, bucket) == ["a.tar.wdx"]


def test_shards_that_a_function_of_the_program_writes_leave_the_store_of_that_name_alone(
    here: S3Server, bucket: str, request: pytest.FixtureRequest
) -> None:
    for name in OLD:
        put(f"{bucket}/{name}")
    own_s3 = request.getfixturevalue("own_s3")
    write(f"{bucket}/a-%d.tar", 1, overwrite=True)
    assert list(own_s3) == [f"{bucket}/a-0.tar"]
    assert names(here, bucket) == OLD
    with pytest.raises(StorageError):
        remove(f"{bucket}/a-2.tar")
    assert names(here, bucket) == OLD


def test_a_scheme_whose_opener_a_program_took_away_is_not_that_of_the_store(
    here: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OLD:
        put(f"{bucket}/{name}")
    monkeypatch.delitem(gopen_schemes, "s3")
    monkeypatch.setitem(gopen_schemes, "__default__", lambda url, mode, bufsize: io.BytesIO())
    write(f"{bucket}/a-%d.tar", 1, overwrite=True)
    for refused in (remove, open_ranges, expand_urls):
        with pytest.raises(StorageError):
            refused(f"{bucket}/a-*.tar")
    assert names(here, bucket) == OLD


@pytest.mark.parametrize("pattern", ["*.tar", ""])
def test_what_a_function_of_the_program_opens_is_not_listed(
    here: S3Server, bucket: str, pattern: str, request: pytest.FixtureRequest
) -> None:
    put(f"{bucket}/a.tar")
    request.getfixturevalue("own_s3")
    with pytest.raises(StorageError):
        expand_urls(f"{bucket}/{pattern}")


def test_a_set_that_is_written_through_aistore_is_replaced_there(
    here: S3Server, bucket: str, ais_double: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ais_double.double is not None
    ais_double.double.buckets.add(bucket.removeprefix("s3://"))
    for through in ("", "s3"):
        monkeypatch.setenv("USE_AIS_FOR", through)
        for name in OLD:
            put(f"{bucket}/{name}")
    write(f"{bucket}/a-%d.tar", 1, overwrite=True)
    assert expand_urls(f"{bucket}/*") == [f"{bucket}/a-0.tar"]
    assert names(here, bucket) == OLD


def test_a_scheme_read_through_aistore_is_the_programs_own_where_aistore_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_AIS_FOR", "s3")
    monkeypatch.setitem(gopen_schemes, "ais", lambda url, mode, bufsize: io.BytesIO(SHARD))
    with Double(lambda question: Reply(404)) as cluster:
        monkeypatch.setenv("AIS_ENDPOINT", cluster.url)
        assert gopen("s3://bucket/a.tar").read() == SHARD
        for refused in (open_ranges, remove):
            with pytest.raises(StorageError):
                refused("s3://bucket/a.tar")
        assert cluster.questions == []


def test_a_yaml_list_is_read_by_the_function_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    spec = b"datasets:\n  - shards: ['s3://b/a-{0..1}.tar']\n"
    monkeypatch.setitem(gopen_schemes, "mine", lambda url, mode, bufsize: io.BytesIO(spec))
    assert [shard["url"] for shard in wds.MultiShardSample("mine:list.yaml")] == ["s3://b/a-0.tar", "s3://b/a-1.tar"]


@pytest.mark.parametrize("url", ["ssh://host/a.tar", "pipe:cat > a.tar", "ftps://host/a.tar", "-"])
def test_what_is_neither_a_file_nor_an_object_is_not_removed(url: str) -> None:
    with pytest.raises(StorageError):
        remove(url)


@pytest.mark.parametrize("end", ["", "/"])
def test_a_bucket_is_no_object(here: S3Server, end: str) -> None:
    """It is neither deleted, which a store does if it is empty, nor made, nor is its list taken for data."""
    bucket = here.bucket()
    for job in (remove, gopen, put):
        with pytest.raises(StorageError) as raised:
            job(f"{bucket}{end}")
        assert raised.value.url == f"{bucket}{end}"
    assert names(here, bucket) == []


@pytest.mark.parametrize("url", ["gs://bucket", "gs://bucket/", "az://container", "az://container/"])
def test_no_store_is_asked_to_delete_a_bucket(nobody: None, url: str) -> None:
    with Double(lambda question: Reply(200)) as store:
        with pytest.raises(StorageError) as raised:
            remove(url, storage_options={"endpoint": store.url, "anonymous": True})
        assert (raised.value.url, store.questions) == (url, [])
