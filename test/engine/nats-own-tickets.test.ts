// Claiming what this process has stored itself on JetStream, where the consumer hears of it a moment late.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { defaults, ids } from "#millrace/conformance/environment.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";

/** How often a consumer gives out nothing, whatever lies there. */
interface Lateness {
  answers: number;
}

/** Two processes on one server. The first asks consumers that are late. */
function deployment() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const late: Lateness = { answers: 0 };
  const asked: string[] = [];
  const seen = { rests: 0 };
  const open = (session: string, isLate: boolean) => {
    const engine = openSimulated(server, {
      clock,
      session,
      isOld: false,
      store: () => new MemoryProjectionStore(clock, memory),
      wire: {
        ...plainWire,
        request: (what, work) => {
          if (!isLate) return plainWire.request(what, work);
          asked.push(what.split(" ")[0] ?? "");
          if (!what.startsWith("fetch") || late.answers === 0) return plainWire.request(what, work);
          late.answers -= 1;
          return plainWire.request(what, () => ({ deliveries: [] }) as ReturnType<typeof work>);
        },
      },
      rest: async () => {
        seen.rests += 1;
      },
    });
    onTestFinished(() => engine.close());
    return new Environment(engine, clock, () => Promise.reject(new Error("It is opened once.")));
  };
  return { env: open("session", true), other: open("other", false), late, asked, seen };
}

/** Claims from the lane that jobs are created in, without anything that a keeper does. */
async function claim(env: Environment, free = 10): Promise<readonly string[]> {
  const lane = env.lane({ free });
  const { jobs } = await env.engine.claim({ worker: defaults.worker, limit: free, lanes: [lane] });
  return ids(jobs.map(({ job }) => job));
}

/** The three priorities of the lane are asked, in whatever order, before anything is asked again. */
const priorities = 3;

describe("a process whose consumers hear late of what it has stored", () => {
  it("claims the jobs that it has just created", async () => {
    const { env, late } = deployment();
    const jobs = await env.createMany(3);
    late.answers = priorities + 2;
    expect([...(await claim(env))].sort()).toEqual([...ids(jobs)].sort());
  });

  it("claims a job that it has offered again", async () => {
    const { env, late } = deployment();
    const { id } = await env.create();
    const job = await env.claimOne();
    await env.settle(job, {
      command: "release",
      token: job.token,
      cause: "snooze",
      runAt: env.now + 5,
    });
    env.clock.advance(5);
    await env.engine.tend?.(job.service);
    late.answers = priorities;
    expect(await claim(env)).toEqual([id]);
  });

  it("claims a job of a key", async () => {
    const { env, late } = deployment();
    const { id } = await env.create({ key: env.key("one") });
    late.answers = priorities;
    expect(await claim(env)).toEqual([id]);
  });

  it("waits for nothing that another was given", async () => {
    const { env, other, asked, seen } = deployment();
    const { id } = await env.create();
    expect(await claim(other)).toEqual([id]);
    asked.length = 0;
    expect(await claim(env)).toEqual([]);
    expect(asked.filter((what) => what === "info")).toHaveLength(1);
    expect(await claim(env)).toEqual([]);
    expect(asked.filter((what) => what === "info")).toHaveLength(1);
    expect(seen.rests).toBe(0);
  });

  it("does not wait for ever, nor again, for what does not come", async () => {
    const { env, late, seen } = deployment();
    const { id } = await env.create();
    late.answers = 1_000;
    expect(await claim(env)).toEqual([]);
    const { rests } = seen;
    expect(rests).toBeGreaterThan(0);
    expect(await claim(env)).toEqual([]);
    expect(seen.rests).toBe(rests);
    late.answers = 0;
    expect(await claim(env)).toEqual([id]);
  });
});
