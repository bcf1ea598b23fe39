"""The environment, read here and nowhere else.

Every property is read when it is used, so that a variable set by a program before it opens a dataset counts.
"""

from __future__ import annotations

import os

GIB = 1 << 30
DEFAULT_MEMBER_BYTES = 8 * GIB
DEFAULT_DECODED_BYTES = 4 * GIB
DEFAULT_RATIO = 1000


class Environment:
    """The environment as typed properties.

    >>> Environment().rank_and_world
    (None, None)
    """

    def __init__(self) -> None:
        self._enforce_security = False
        self.usual_decoded_bytes = DEFAULT_DECODED_BYTES
        """What `max_decoded_bytes` is where the environment does not say; a program that only shows data lowers it."""

    # -- safety ----------------------------------------------------------------------------------

    @property
    def secure(self) -> bool:
        """`WDS_SECURE=1` or `wds.utils.enforce_security = True`: no commands, pickles, rewriting, local files."""
        return self._enforce_security or _flag("WDS_SECURE")

    @secure.setter
    def secure(self, value: bool) -> None:
        self._enforce_security = bool(value)

    @property
    def secure_roots(self) -> list[str]:
        """Folders that stay readable in secure mode: `WDS_SECURE_ROOTS=/a:/b`, and the library's own indices."""
        return [*filter(None, os.environ.get("WDS_SECURE_ROOTS", "").split(os.pathsep)), self.indices_dir]

    @property
    def strict(self) -> bool:
        """`WDS_STRICT=1`: what would be a warning or a skip is an error."""
        return _flag("WDS_STRICT")

    @property
    def allow_pickle(self) -> bool:
        """`WDS_ALLOW_PICKLE=1`: pickles in data may build any object, that is, run any code."""
        return _flag("WDS_ALLOW_PICKLE") and not self.secure

    @property
    def allow_pipe(self) -> bool:
        """`WDS_ALLOW_PIPE=0` refuses commands in urls."""
        return _flag("WDS_ALLOW_PIPE", default=True) and not self.secure

    @property
    def pytorch_weights_only(self) -> bool:
        """`WDS_PYTORCH_WEIGHTS_ONLY=0` lets `.pth` fields hold any object."""
        return _flag("WDS_PYTORCH_WEIGHTS_ONLY", default=True) and not self.allow_pickle

    @property
    def allow_downgrade(self) -> bool:
        """`WDS_ALLOW_DOWNGRADE=1`: follow a redirect from https to http."""
        return _flag("WDS_ALLOW_DOWNGRADE")

    @property
    def show_secrets(self) -> bool:
        """`WDS_SHOW_SECRETS=1`: urls in messages keep their passwords and tokens."""
        return _flag("WDS_SHOW_SECRETS")

    @property
    def allow_obsolete(self) -> bool:
        """`ALLOW_OBSOLETE=1`: calls kept for very old programs."""
        return _flag("ALLOW_OBSOLETE")

    @property
    def allow_bind(self) -> bool:
        """`WDS_ALLOW_BIND=1`: ZeroMQ channels may be bound to addresses that other machines can reach."""
        return _flag("WDS_ALLOW_BIND")

    @property
    def owner(self) -> int | None:
        """`WDS_OWNER`: the number of a user whose runs this process does besides its own; pods of runs have it."""
        value = os.environ.get("WDS_OWNER")
        return _int("WDS_OWNER", value) if value else None

    @property
    def max_member_bytes(self) -> int:
        """The largest member that is read into memory (`WDS_MAX_MEMBER_BYTES`, such as 20G)."""
        return _size("WDS_MAX_MEMBER_BYTES") or min(DEFAULT_MEMBER_BYTES, _memory() // 2)

    @property
    def max_decoded_bytes(self) -> int:
        """The most bytes that one compressed field or shard member may expand to (`WDS_MAX_DECODED_BYTES`)."""
        return _size("WDS_MAX_DECODED_BYTES") or self.usual_decoded_bytes

    @property
    def max_ratio(self) -> int:
        """How many times its size compressed data may expand to, above 64 MiB (`WDS_MAX_RATIO`)."""
        return _size("WDS_MAX_RATIO") or DEFAULT_RATIO

    # -- urls and storage ------------------------------------------------------------------------

    def url_variable(self, name: str) -> str | None:
        """The value of `${NAME}` in a url: the variable `WDS_NAME`."""
        return os.environ.get(f"WDS_{name}")

    @property
    def gopen_verbose(self) -> bool:
        """`GOPEN_VERBOSE=1` logs every url that is opened."""
        return _flag("GOPEN_VERBOSE")

    @property
    def gopen_rewrite(self) -> str:
        """Rewrites urls before they are opened: `GOPEN_REWRITE="regex=replacement;..."`."""
        return os.environ.get("GOPEN_REWRITE", "")

    @property
    def gopen_buffer(self) -> int:
        """The buffer for local files in bytes (`GOPEN_BUFFER`); -1 is Python's own."""
        return _size("GOPEN_BUFFER") or -1

    @property
    def use_ais_for(self) -> list[str]:
        """The schemes whose urls are read through AIStore, as in `USE_AIS_FOR=gs:s3`."""
        return [scheme for scheme in os.environ.get("USE_AIS_FOR", "").split(":") if scheme]

    @property
    def ais_endpoint(self) -> str | None:
        """The address of an AIStore proxy, as in `AIS_ENDPOINT=http://host:51080`."""
        return os.environ.get("AIS_ENDPOINT")

    @property
    def ais_token(self) -> str | None:
        """The token for AIStore: `AIS_AUTHN_TOKEN`, or what is in the file `AIS_AUTHN_TOKEN_FILE`."""
        return os.environ.get("AIS_AUTHN_TOKEN") or None

    @property
    def ais_token_file(self) -> str | None:
        """The file with the token for AIStore, `AIS_AUTHN_TOKEN_FILE`."""
        return os.environ.get("AIS_AUTHN_TOKEN_FILE") or None

    @property
    def ais_client_ca(self) -> str | None:
        """A file with the certificate of the authority that signed those of AIStore's nodes."""
        return os.environ.get("AIS_CLIENT_CA") or None

    @property
    def ais_api(self) -> str:
        """Which of a cluster's interfaces reads objects: `native`, or `s3` (`WDS_AIS_API`)."""
        return os.environ.get("WDS_AIS_API") or "native"

    @property
    def patience(self) -> float:
        """How many seconds to wait for a server or store that is down (`WDS_PATIENCE`, 90 if not set)."""
        return _seconds("WDS_PATIENCE", 90.0)

    @property
    def retries(self) -> int | None:
        """How many times in a row to retry a server that is down (`WDS_RETRIES`), None for any number."""
        value = os.environ.get("WDS_RETRIES")
        return _int("WDS_RETRIES", value) if value else None

    @property
    def ais_patience(self) -> float:
        """The patience for an AIStore cluster that lost a target (`WDS_AIS_PATIENCE`)."""
        return _seconds("WDS_AIS_PATIENCE", self.patience)

    @property
    def ssh_command(self) -> str:
        """The command behind ssh: urls, with options if need be (`WDS_SSH="ssh -F config"`)."""
        return os.environ.get("WDS_SSH") or "ssh"

    @property
    def netrc(self) -> str:
        """The file with users and passwords by host: `NETRC`, else `~/.netrc`."""
        return os.environ.get("NETRC") or os.path.expanduser("~/.netrc")

    @property
    def proxies(self) -> tuple[str | None, ...]:
        """The variables that urllib reads to find proxies; here to notice that they changed."""
        return tuple(map(os.environ.get, _PROXIES))

    @property
    def ca_bundle(self) -> str | None:
        """More trusted certificates, named as for curl and requests."""
        return os.environ.get("CURL_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or None

    @property
    def ssl_cert_file(self) -> str | None:
        """Read by OpenSSL itself; here to notice that it changed."""
        return os.environ.get("SSL_CERT_FILE")

    @property
    def hf_token(self) -> str | None:
        """The token for Hugging Face."""
        return os.environ.get("HF_TOKEN")

    @property
    def hf_endpoint(self) -> str | None:
        """The address of the Hugging Face Hub, if it is another."""
        return os.environ.get("HF_ENDPOINT")

    def cloud(self, *names: str) -> str | None:
        """The first of these variables of a store's own tools (`AWS_...`, `AZURE_...`, ...) that is not empty."""
        return next(filter(None, map(os.environ.get, names)), None)

    @property
    def aws_no_sign_request(self) -> bool:
        """`AWS_NO_SIGN_REQUEST=1`: ask S3 without credentials, also where there are some."""
        return _flag("AWS_NO_SIGN_REQUEST")

    @property
    def cache_dir(self) -> str | None:
        """The folder in which shards are kept on this machine, if `cache_dir=` does not say it."""
        return os.environ.get("WDS_CACHE") or os.environ.get("WEBDATASET_CACHE")

    @property
    def indices_dir(self) -> str:
        """Where indices of shards are kept that cannot stand beside them: `indices` in the cache folder."""
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return os.path.join(self.cache_dir or os.path.join(home, "webdataset"), "indices")

    @property
    def copies_dir(self) -> str:
        """Where shards are kept that can only be fetched whole: `shards` in the cache folder."""
        return os.path.join(os.path.dirname(self.indices_dir), "shards")

    @property
    def cache_size(self) -> int:
        """The most bytes of the cache folder, such as 500G; -1 for any number."""
        return _size("WDS_CACHE_SIZE") or _size("WEBDATASET_CACHE_SIZE") or -1

    @property
    def cache_check(self) -> bool:
        """`WDS_CACHE_CHECK=1` asks servers whether cached shards are still the same."""
        return _flag("WDS_CACHE_CHECK")

    @property
    def cache_verbose(self) -> bool:
        """`WDS_VERBOSE_CACHE=1` logs what the cache does."""
        return _flag("WDS_VERBOSE_CACHE") or _flag("WEBDATASET_CACHE_VERBOSE")

    @property
    def wids_cache(self) -> str | None:
        """Where `wids` keeps shards on this machine (`WIDS_CACHE`); without it they are read where they are."""
        return os.environ.get("WIDS_CACHE") or None

    @property
    def wids_verbose(self) -> bool:
        """`WIDS_VERBOSE=1` logs the shards of a `ShardListDataset`."""
        return _flag("WIDS_VERBOSE")

    def child_environment(self, more: dict[str, str]) -> dict[str, str]:
        """The environment of a process that is started, with these variables besides."""
        return {**os.environ, **more}

    def update_environment(self, variables: dict[str, str]) -> None:
        """Set variables, in a process that does somebody's work."""
        os.environ.update(variables)

    def set_default(self, name: str, value: str) -> None:
        """Set a variable of another package before that is imported, unless the user has set it."""
        os.environ.setdefault(name, value)

    @property
    def task_index(self) -> int | None:
        """Which task of an array this process is: Slurm's `SLURM_ARRAY_TASK_ID`, Kubernetes' `JOB_COMPLETION_INDEX`."""
        value = os.environ.get("SLURM_ARRAY_TASK_ID") or os.environ.get("JOB_COMPLETION_INDEX")
        return _int("the index of the task", value) if value else None

    @property
    def memory(self) -> int:
        """How many bytes of memory this machine has; no variable changes it."""
        return _memory()

    @property
    def ray_address(self) -> str | None:
        """The Ray cluster of runs without `--address`: Ray's own `RAY_ADDRESS`."""
        return os.environ.get("RAY_ADDRESS") or None

    @property
    def jobs_config(self) -> str | None:
        """A file with options for all runs: `WDS_JOBS`, else `~/.config/webdataset/jobs.toml`, if there is one."""
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        usual = os.path.join(home, "webdataset", "jobs.toml")
        return os.environ.get("WDS_JOBS") or (usual if os.path.exists(usual) else None)

    @property
    def runs_dir(self) -> str:
        """Where the names of runs are kept: `runs` in the cache folder."""
        return os.path.join(os.path.dirname(self.indices_dir), "runs")

    @property
    def terminal(self) -> tuple[str, str]:
        """The kind of terminal (`TERM`) and the program that is one (`TERM_PROGRAM`)."""
        return os.environ.get("TERM", ""), os.environ.get("TERM_PROGRAM", "")

    # -- watching --------------------------------------------------------------------------------

    @property
    def monitor(self) -> bool:
        """`WDS_MONITOR=1`, or a folder: every loader publishes what it does, for `wl view` to show."""
        return _flag("WDS_MONITOR")

    @property
    def monitor_is_default(self) -> bool:
        """Whether `WDS_MONITOR` names no folder."""
        return os.sep not in os.environ.get("WDS_MONITOR", "")

    @property
    def monitor_dir(self) -> str:
        """Where loaders publish what they do: the folder that `WDS_MONITOR` names, or one of this user's own."""
        if not self.monitor_is_default:
            return os.environ["WDS_MONITOR"]
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        return os.path.join(runtime, "webdataset") if runtime else f"/tmp/webdataset-{os.getuid()}"  # noqa: S108 - checked

    # -- randomness and place --------------------------------------------------------------------

    @property
    def seed(self) -> int | None:
        """The seed of datasets that are given none."""
        value = os.environ.get("WDS_SEED")
        return None if value is None else _int("WDS_SEED", value)

    @property
    def show_seed(self) -> bool:
        """`WDS_SHOW_SEED=1` logs the seeds that are drawn."""
        return _flag("WDS_SHOW_SEED")

    @property
    def rank_and_world(self) -> tuple[int | None, int | None]:
        """This process's number and that of all processes of a job, where torch.distributed does not say it."""
        return _pair("RANK", "WORLD_SIZE")

    @property
    def processors(self) -> int:
        """How many processors this process may use."""
        try:
            return len(os.sched_getaffinity(0))
        except AttributeError:  # not on every system
            return os.cpu_count() or 1

    @property
    def worker_and_workers(self) -> tuple[int | None, int | None]:
        """This worker's number and that of all workers, where torch's DataLoader does not say it."""
        return _pair("WORKER", "NUM_WORKERS")


settings = Environment()

_LOWER = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_PROXIES = (*_LOWER, *map(str.upper, _LOWER), "REQUEST_METHOD")


def _flag(name: str, *, default: bool = False) -> bool:
    value = os.environ.get(name)
    return default if value is None or value == "" else value.strip().lower() not in ("0", "false", "no", "off")


def _int(name: str, value: str) -> int:
    try:
        return int(float(value))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None


def _size(name: str) -> int:
    """A number of bytes with a unit, or any whole number, such as -1."""
    value = os.environ.get(name) or "0"
    if value[-1].isdigit():
        return _int(name, value)
    from .units import number_of_bytes  # most programs need none

    try:
        return number_of_bytes(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _seconds(name: str, default: float) -> float:
    value = os.environ.get(name)
    try:
        return float(value) if value else default
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds, got {value!r}") from None


def _pair(first: str, second: str) -> tuple[int | None, int | None]:
    one, two = os.environ.get(first), os.environ.get(second)
    if one is None or two is None:
        return None, None
    return _int(first, one), _int(second, two)


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 16 * GIB
