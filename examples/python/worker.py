"""A worker for Millrace in Python, with nothing but the standard library.

    python3 worker.py http://127.0.0.1:8080

It claims jobs of the service "shop", renews their leases while it works on them, stops those that were cancelled,
and says how each try went. MILLRACE_TOKEN holds the token where the server asks for one. Ctrl-C or SIGTERM lets the
current job finish and stops.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

SERVICE = "shop"
WAIT_MS = 20_000
LEASE_MS = 15_000
RETRY_SECONDS = 2


class Terminate(Exception):
    """The job has failed, and trying it again would not help."""


class Stopped(Exception):
    """The job was cancelled, or is not this worker's any more."""


def send_receipt(job, payload):
    """The handler of sendReceipt: what it returns is the job's result."""
    if "@" not in payload["to"]:
        raise Terminate(f"{payload['to']} is not an address")
    job.progress(step="render", current=1, total=2)
    job.log(f"rendering the receipt for {payload['orderId']}")
    job.check()
    return {"messageId": f"m-{payload['orderId']}"}


def count_slowly(job, payload):
    """The handler of countSlowly: it looks whether it is to stop between its steps."""
    for number in range(payload["to"]):
        job.wait(0.05)
        job.progress(current=number + 1, total=payload["to"])
    return payload["to"]


HANDLERS = {"sendReceipt": send_receipt, "countSlowly": count_slowly}


class Api:
    """Asks the server. Every answer is JSON; a refusal has a code, a reason and a sentence."""

    def __init__(self, url, token):
        self.url = url.rstrip("/")
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def post(self, path, body):
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers, method="POST")
        with urllib.request.urlopen(request, timeout=WAIT_MS / 1000 + 10) as response:
            return json.load(response)


    def post_until(self, deadline, path, body):
        """Asks again while the server is away or busy, until the deadline."""
        while True:
            try:
                return self.post(path, body)
            except OSError as problem:
                if not passes(problem) or time.monotonic() >= deadline:
                    raise
            time.sleep(RETRY_SECONDS)


def passes(problem):
    """Whether asking again may help: the server is away, busy, or asks to slow down."""
    return not isinstance(problem, urllib.error.HTTPError) or problem.code in (429, 503)


class Job:
    """A claimed job. A thread of its own renews the lease until the job is settled."""

    def __init__(self, api, claimed):
        self.api = api
        self.id = claimed["job"]["id"]
        self.type = claimed["job"]["type"]
        self.payload = claimed["job"]["payload"]
        self.token = claimed["token"]
        self.stopped = threading.Event()  # The handler is to stop.
        self.settled = threading.Event()  # The lease needs no more renewals.
        self.is_cancelled = False
        self.renewer = threading.Thread(target=self.renew, daemon=True)
        self.renewer.start()

    def renew(self):
        while not self.settled.wait(LEASE_MS / 3000):
            lease = {"jobId": self.id, "token": self.token, "leaseMs": LEASE_MS}
            try:
                entry = self.api.post("/v1/work/renewals", {"leases": [lease]})["entries"][0]
            except OSError:
                continue  # The server may be back before the lease lapses.
            self.is_cancelled = entry.get("cancelRequested", False)
            if entry["outcome"] != "held" or self.is_cancelled:
                self.stopped.set()

    def progress(self, **progress):
        self.api.post(f"/v1/work/jobs/{self.id}/progress", {"token": self.token, "progress": progress})

    def log(self, message, level="info"):
        entries = [{"level": level, "message": message}]
        self.api.post(f"/v1/work/jobs/{self.id}/logs", {"token": self.token, "entries": entries})

    def wait(self, seconds):
        """Sleeps, unless the job is to stop."""
        if self.stopped.wait(seconds):
            raise Stopped()

    def check(self):
        self.wait(0)

    def settle(self, outcome, **more):
        self.settled.set()
        body = {"token": self.token, "outcome": outcome, **more}
        try:
            job = self.api.post_until(time.monotonic() + LEASE_MS / 1000, f"/v1/work/jobs/{self.id}/settle", body)
            print(f"{self.type} {self.id}: {job['state']}", flush=True)
        except urllib.error.HTTPError as refusal:
            error = json.load(refusal)["error"]
            print(f"{self.type} {self.id}: {error['details']['reason']}", flush=True)
        except OSError as problem:
            print(f"{self.type} {self.id}: not settled, {problem}", flush=True)

    def run(self):
        try:
            result = HANDLERS[self.type](self, self.payload)
        except Stopped:
            if self.is_cancelled:
                self.settle("cancelled")
            else:
                self.settled.set()  # Somebody else has it, or it has ended.
        except Terminate as error:
            self.settle("terminated", error={"message": str(error)})
        except Exception as error:  # Whatever else goes wrong is tried again.
            self.settle("failed", error={"message": str(error), "name": type(error).__name__})
        else:
            self.settle("completed", result=result)


def main():
    api = Api(sys.argv[1], os.environ.get("MILLRACE_TOKEN"))
    stopping = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopping.set())
    ask = {
        "service": SERVICE,
        "worker": f"python-{os.getpid()}",
        "types": [{"type": name} for name in HANDLERS],
        "leaseMs": LEASE_MS,
        "waitMs": int(os.environ.get("WAIT_MS", WAIT_MS)),
    }
    print("working", flush=True)
    while not stopping.is_set():
        try:
            claimed = api.post("/v1/work/claims", ask)["jobs"]
        except OSError as fault:
            if not passes(fault):
                sys.exit(json.load(fault)["error"]["message"])
            print(f"the server is away: {fault}", file=sys.stderr, flush=True)
            stopping.wait(RETRY_SECONDS)
            continue
        for job in claimed:
            Job(api, job).run()
    print("stopped", flush=True)


main()
