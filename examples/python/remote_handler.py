"""A remote handler for jobs of the type email:new, with nothing but Python's standard library.

    python3 remote_handler.py nats://localhost:4222

It speaks the NATS protocol over a plain socket: it listens on millrace.H.T.email:new in a queue group, so that several
of them share the jobs, and answers each request with a result, an error that may pass, or that the job is to be given up.
"""

import base64
import json
import os
import socket
import sys
from datetime import datetime, timezone
from urllib.parse import urlsplit

SUBJECT = os.environ.get("REMOTE_SUBJECT", "millrace.H.T.email:new")
QUEUE_GROUP = "handlers"
BODY_BYTES_MAX = 8 * 1024 * 1024


class Terminate(Exception):
    """Retrying cannot help."""


def send_email(task, payload, deadline):
    """The work. It must be done by the deadline; a later reply is ignored, and the job is tried again."""
    to = payload.get("to", "")
    if "@" not in to:
        raise Terminate(f"{to!r} is no address")
    if to.endswith("@busy.example") and task["tries"] == 1:
        raise RuntimeError("the mail server is busy")
    return {"messageId": f"{task['id']}@python", "to": to, "try": task["tries"]}


def answer(headers, body):
    """Gives the headers and the body of the reply to a request."""
    try:
        # The Z of UTC is known to newer versions of Python only.
        deadline = datetime.fromisoformat(headers["AJ-Handler-Deadline"].replace("Z", "+00:00"))
        if deadline <= datetime.now(timezone.utc):
            raise RuntimeError("the request came too late")
        task = json.loads(body)
        payload = json.loads(base64.b64decode(task["payload"]))
        return {}, json.dumps(send_email(task, payload, deadline)).encode()
    except Terminate as error:
        return {"AJ-Terminate": one_line(error)}, b""
    except Exception as error:
        return {"AJ-Error": one_line(error)}, b""


def one_line(error):
    return " ".join(str(error).split()) or type(error).__name__


def parse_headers(block):
    lines = block.decode().split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def reply(stream, inbox, headers, body):
    """A message with headers tells the length of the headers, and of both together."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    stream.write(f"HPUB {inbox} {len(block)} {len(block) + len(body)}\r\n".encode())
    stream.write(block + body + b"\r\n")
    stream.flush()


def read_exactly(stream, length):
    if length > BODY_BYTES_MAX:
        raise ConnectionError("a message is too long")
    data = stream.read(length + 2)
    if len(data) < length + 2:
        raise ConnectionError("the server has closed the connection")
    return data[:-2]


def serve(url):
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port or 4222))
    stream = connection.makefile("rwb")
    stream.readline()  # INFO: what the server offers.
    options = {"verbose": False, "pedantic": False, "headers": True, "name": "remote_handler.py"}
    if address.username is not None:
        options |= {"user": address.username, "pass": address.password or ""}
    stream.write(f"CONNECT {json.dumps(options)}\r\n".encode())
    stream.write(f"SUB {SUBJECT} {QUEUE_GROUP} 1\r\nPING\r\n".encode())
    stream.flush()
    while line := stream.readline():
        words = line.decode().split()
        command = words[0].upper() if words else ""
        if command == "PING":
            stream.write(b"PONG\r\n")
            stream.flush()
        elif command == "PONG":
            print(f"listening on {SUBJECT}", flush=True)
        elif command == "HMSG":  # HMSG subject sid [reply] header-length total-length
            header_length, length = int(words[-2]), int(words[-1])
            message = read_exactly(stream, length)
            headers = parse_headers(message[:header_length])
            if len(words) == 6:
                reply(stream, words[3], *answer(headers, message[header_length:]))
        elif command == "MSG":  # MSG subject sid [reply] length; a request always has headers.
            read_exactly(stream, int(words[-1]))
        elif command == "-ERR":
            raise ConnectionError(line.decode().strip())


if __name__ == "__main__":
    try:
        serve(sys.argv[1] if len(sys.argv) > 1 else "nats://localhost:4222")
    except KeyboardInterrupt:
        pass
