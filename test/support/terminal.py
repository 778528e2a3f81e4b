"""Runs a command in a pseudo-terminal, types what it is told to, and prints what came out as JSON.

The only argument is JSON: {"command": [...], "columns": 80, "rows": 24, "steps": [{"after": "text", "type": "y"}]}.
Each step waits until its text has come, and types then; "signal" sends Ctrl-C as "\x03" does.
"""

import fcntl
import json
import os
import pty
import struct
import sys
import termios

CHUNK_BYTES = 65536


def main() -> None:
    wish = json.loads(sys.argv[1])
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(wish["command"][0], wish["command"])
    size = struct.pack("HHHH", wish["rows"], wish["columns"], 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    steps = list(wish["steps"])
    text = ""
    seen = 0
    while True:
        try:
            data = os.read(terminal, CHUNK_BYTES)
        except OSError:
            break
        if not data:
            break
        text += data.decode("utf-8", "replace")
        while steps and steps[0]["after"] in text[seen:]:
            step = steps.pop(0)
            seen = text.index(step["after"], seen) + len(step["after"])
            os.write(terminal, step["type"].encode())
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps({"code": code, "text": text, "left": len(steps)}))


main()
