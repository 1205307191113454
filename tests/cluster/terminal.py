# SPDX-License-Identifier: Apache-2.0
"""terminal.py SECONDS [PATTERN KEYS]... -- COMMAND...: somebody at a terminal.

COMMAND gets a terminal of its own, which shows every byte as it is and echoes none. Where it shows what matches PATTERN,
behind what matched the one before, KEYS are typed. All that it showed goes to stdout. The exit status is COMMAND's, 128
and the signal, or 99 where it took longer than SECONDS.
"""

import os
import pty
import re
import select
import signal
import sys
import termios
import time

end = sys.argv.index("--")
limit = time.monotonic() + float(sys.argv[1])
script = sys.argv[2:end]
shown, seen = b"", 0

pid, terminal = pty.fork()
if pid == 0:
    mode = termios.tcgetattr(0)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, mode)
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])

while time.monotonic() < limit:
    if not select.select([terminal], [], [], 0.1)[0]:
        continue
    try:
        piece = os.read(terminal, 65536)
    except OSError:  # nobody has the terminal any more
        break
    shown += piece
    while script and (found := re.compile(script[0].encode()).search(shown, seen)):
        os.write(terminal, script[1].encode())
        seen = found.end()
        script = script[2:]
else:
    os.killpg(pid, signal.SIGKILL)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.buffer.write(shown)
if script:
    print(f"terminal.py: never shown: {script[0]}", file=sys.stderr)
if time.monotonic() >= limit:
    status = 99
sys.exit(status if status >= 0 else 128 - status)
