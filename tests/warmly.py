"""A program that others start as they would start python, forked from a process that has imported what it needs.

    python -S -E warmly.py ADDRESS -m webdataset ls a.tar

asks the server at the address (see warm.py, which writes such commands) to be the program that follows, with the
streams, folder and environment of this process, passes signals on to it, and ends as it ends. Few modules are imported
here, and none that take long: starting must cost less than what it saves.
"""

import _signal
import _socket
import marshal
import os
import sys

process = None
early = []


def forward(number, _):
    """Pass a signal on, if it is known to whom; else later."""
    if process is None:
        early.append(number)
    else:
        os.kill(process, number)


def main(address, *words):
    global process
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, forward)
    with _Socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET) as connection:
        connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, 1 << 20)
        connection.connect("\0" + address)
        ours, theirs = _socket.socketpair()
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2, theirs.fileno()))
        request = {"words": words, "cwd": os.getcwd(), "environment": dict(os.environ), "limits": {}}
        connection.sendmsg([marshal.dumps(request)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    theirs.close()
    process = int(_line(ours))
    for number in early:
        os.kill(process, number)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)  # who reads what the program writes sees its end, and not that of this process
    status = int(_line(ours))
    if status < 0:
        if -status != _signal.SIGKILL:
            _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _line(connection):
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            os._exit(70)  # the server is gone
        line += piece
    return line


class _Socket(_socket.socket):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


main(*sys.argv[1:])
