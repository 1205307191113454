# SPDX-License-Identifier: Apache-2.0
"""terminal.py SECONDS [PATTERN KEYS]... -- COMMAND...: runs COMMAND at a terminal and types KEYS.

COMMAND runs in a new terminal without echo and without output processing. KEYS are typed when the output matches PATTERN, after
the previous match. If the last PATTERN begins with "*", KEYS are typed each time it matches. All output goes to stdout. The
exit status is that of COMMAND, 128 plus the signal that ended it, or 99 if it ran longer than SECONDS.
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
output, matched_to = b"", 0

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
    except OSError:  # no process has the terminal open any more
        break
    output += piece
    while script and (found := re.compile(script[0].removeprefix("*").encode()).search(output, matched_to)):
        os.write(terminal, script[1].encode())
        matched_to = found.end()
        if not script[0].startswith("*"):
            script = script[2:]
else:
    os.killpg(pid, signal.SIGKILL)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.buffer.write(output)
if script and not script[0].startswith("*"):
    print(f"terminal.py: no output matched: {script[0]}", file=sys.stderr)
if time.monotonic() >= limit:
    status = 99
sys.exit(status if status >= 0 else 128 - status)
