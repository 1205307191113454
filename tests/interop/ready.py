# SPDX-License-Identifier: Apache-2.0
"""A Python process that has imported PyTorch, which takes seconds, and forks to run scripts.

ready.py serve SOCKET               serve until the parent process ends
ready.py run SOCKET SCRIPT ARG...   like python3 -W ignore SCRIPT ARG..., with the directory, the
                                    environment and the standard files of this process
"""

import json
import os
import runpy
import signal
import socket
import sys
import traceback


def run_script(argv):
    """Runs the script. Returns the exit status that python3 would have."""
    sys.argv, sys.path[0] = argv, os.path.dirname(argv[0])
    try:
        runpy.run_path(argv[0], run_name="__main__")
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
    return 1


def answer(connection):
    """In a child process: runs the requested script and sends its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    request = json.loads(data)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    status = run_script(request["argv"])
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([status]))
    os._exit(0)


def serve(path):
    import torch.distributed
    import torch.multiprocessing
    import torch.nn.parallel
    import torch.utils.data

    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen()
    listener.settimeout(1)
    os.rename(path + ".new", path)
    while os.getppid() == parent:
        try:
            connection = listener.accept()[0]
        except TimeoutError:
            continue
        connection.settimeout(None)
        if os.fork() == 0:
            listener.close()
            answer(connection)
        connection.close()


def run(path, *argv):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = {"directory": os.getcwd(), "environment": dict(os.environ), "argv": argv}
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(connection, [data], [0, 1, 2])
        connection.sendall(data[sent:])
        status = connection.recv(1)
    if not status:
        sys.exit(f"{argv[0]} ended without an exit status: by a signal?")
    sys.exit(status[0])


{"serve": serve, "run": run}[sys.argv[1]](*sys.argv[2:])
