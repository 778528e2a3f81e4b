// What the faults of a PostgreSQL server, its driver and other code are taken for.
import { describe, expect, it } from "vitest";
import {
  isConnectionLoss,
  isLockTimeout,
  isPassing,
  storeError,
} from "#millrace/engine/postgres/faults.js";
import { cursorOf, placeOf } from "#millrace/engine/postgres/feed.js";

const place = { where: "postgres://host/jobs", schema: "millrace", database: "jobs", user: "me" };

/** A fault as the driver gives it. */
function fault(code: string, message: string, routine?: string): Error {
  return Object.assign(new Error(message), { code, ...(routine && { routine }) });
}

describe("a lock that is not to be had", () => {
  const refused = "konnte Sperre für Zeile in Relation »leases« nicht setzen";
  const late = "storniere Anfrage wegen Zeitüberschreitung einer Sperre";

  it("is met again where nobody waited for it, in whatever language the server says so", () => {
    const nobodyWaited = fault("55P03", refused, "heapam_tuple_lock");
    expect([isPassing(nobodyWaited), isLockTimeout(nobodyWaited)]).toEqual([true, false]);
    const waited = fault("55P03", late, "ProcessInterrupts");
    expect([isPassing(waited), isLockTimeout(waited)]).toEqual([false, true]);
  });

  it("is told by its message where a client tells nothing else", () => {
    expect(isPassing(fault("55P03", "could not obtain lock on row"))).toBe(true);
    expect(isPassing(fault("55P03", "canceling statement due to lock timeout"))).toBe(false);
  });
});

it("a server without memory is not told to have a full disk", () => {
  const disk = storeError(fault("53100", "could not extend file"), place);
  expect(disk._tag).toBe("StoreFull");
  expect(disk.message).toMatch(/free disk space/);
  const memory = storeError(fault("53200", "out of shared memory"), place);
  expect(memory._tag).toBe("StoreFull");
  expect(memory.message).toMatch(/no memory left .*out of shared memory/);
  expect(memory.message).not.toMatch(/disk/);
});

it("a fault of the code that asks is neither the server's nor a lost connection", () => {
  const own = new TypeError("Cannot read properties of undefined");
  expect(isConnectionLoss(own)).toBe(false);
  expect(storeError(own, place)).toMatchObject({ _tag: "StoreFailed" });
  expect(storeError(own, place).message).toMatch(/fault of Millrace's own/);
});

it("a cursor names every position that there can be", () => {
  const cursor = `/810:810:/${Number.MAX_SAFE_INTEGER}`;
  expect(cursorOf(placeOf(cursor))).toBe(cursor);
  expect(() => placeOf(`/810:810:/${Number.MAX_SAFE_INTEGER + 2}`)).toThrow(/is not a cursor/);
});
