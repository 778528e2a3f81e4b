// Whether events go to JetStream one by one or together follows from how long each way takes.
import { describe, expect, it } from "vitest";
import { Pace } from "#millrace/engine/nats/pace.js";

/** What a server takes for a message in a batch. */
const batchedMs = 0.03;

/** A server that takes a while for each message, for each batch, and for each message of one. */
class TimedServer {
  nowMs = 0;
  readonly pace = new Pace(() => this.nowMs);
  aloneMs: number;
  batchMs: number;

  constructor(aloneMs: number, batchMs: number) {
    this.aloneMs = aloneMs;
    this.batchMs = batchMs;
  }

  /** Sends as the pace has it, as often as told. Gives how many times all but a trial went one by one. */
  async send(count: number, times: number): Promise<number> {
    let alone = 0;
    for (let time = 0; time < times; time++) {
      const trial = this.pace.goesAlone(count) ? 0 : this.pace.trialOf(count);
      if (trial > 0) await this.#oneByOne(trial);
      const rest = count - trial;
      if (this.pace.goesAlone(rest)) {
        alone += 1;
        await this.#oneByOne(rest);
      } else {
        await this.pace.together(rest, async () => {
          this.nowMs += this.batchMs + rest * batchedMs;
        });
      }
    }
    return alone;
  }

  /** Sends calls one by one; the answers to all of them come at once, when the last message is stored. */
  async bunch(counts: readonly number[]): Promise<void> {
    const answers: (() => void)[] = [];
    const sent = counts.map((count) =>
      this.pace.alone(count, () => new Promise<void>((answer) => answers.push(answer))),
    );
    for (const count of counts) this.nowMs += count * this.aloneMs;
    for (const answer of answers) answer();
    await Promise.all(sent);
  }

  /** Answers come one after the other, and all are on their way from the start. */
  async #oneByOne(count: number): Promise<void> {
    const answers: (() => void)[] = [];
    const sent = Array.from({ length: count }, () =>
      this.pace.alone(1, () => new Promise<void>((answer) => answers.push(answer))),
    );
    for (const [index, answer] of answers.entries()) {
      this.nowMs += this.aloneMs;
      answer();
      await sent[index];
    }
  }
}

describe("the pace of a server", () => {
  it("lets few messages go one by one where each is cheap", async () => {
    const server = new TimedServer(0.03, 3);
    expect(await server.send(50, 100)).toBeGreaterThan(90);
  });

  it("lets many messages go one by one where each is cheap", async () => {
    const server = new TimedServer(0.03, 3);
    expect(await server.send(400, 100)).toBe(100);
    expect(server.pace.isQuick).toBe(true);
  });

  it("sends many messages together where each is dear", async () => {
    const server = new TimedServer(0.2, 3);
    expect(await server.send(400, 100)).toBe(0);
    expect(server.pace.isQuick).toBe(false);
  });

  it("tries messages alone again, few of them and ever more rarely", async () => {
    const server = new TimedServer(0.2, 3);
    const trials: [number, number][] = [];
    for (let time = 0; time < 1_000; time++) {
      const trial = server.pace.trialOf(400);
      if (trial > 0) trials.push([time, trial]);
      await server.send(400, 1);
    }
    const times = [0, 32, 96, 224, 480, 736, 992];
    expect(trials).toEqual(times.map((time) => [time, 32]));
  });

  it("tries as often as at first where a server was quick meanwhile", async () => {
    const server = new TimedServer(0.2, 3);
    await server.send(400, 500);
    server.aloneMs = 0.03;
    await server.send(400, 300);
    server.aloneMs = 0.2;
    await server.send(400, 10);
    let until = 0;
    while (server.pace.trialOf(400) === 0) until += 1 + (await server.send(400, 1));
    expect(until).toBeLessThanOrEqual(32);
  });

  it("sends few messages together, too, where each goes to the disk", async () => {
    const server = new TimedServer(0.3, 3);
    expect(await server.send(50, 200)).toBeLessThan(20);
  });

  it("is not misled by answers that come in bunches", async () => {
    const server = new TimedServer(0.2, 3);
    for (let time = 0; time < 10; time++) await server.bunch([32, 64, 128, 256, 20]);
    expect(server.pace.trialOf(500)).toBe(0);
    expect(server.pace.goesAlone(500)).toBe(false);
    expect(server.pace.goesAlone(10)).toBe(true);
  });

  it("never makes a single message wait for others", async () => {
    const server = new TimedServer(10, 0.01);
    expect(await server.send(1, 100)).toBe(100);
  });

  it("learns nothing from messages that nobody is beside", async () => {
    const server = new TimedServer(0.3, 3);
    await server.send(1, 500);
    server.aloneMs = 0.03;
    expect(await server.send(50, 20)).toBe(20);
  });

  it("is not misled by a machine that is busy most of the time", async () => {
    const server = new TimedServer(0.03, 3);
    for (let time = 0; time < 20; time++) {
      server.aloneMs = time % 5 === 0 ? 0.03 : 0.4;
      expect(await server.send(200, 1)).toBe(1);
    }
  });

  it("goes on to send together where batches have to wait most of the time", async () => {
    const server = new TimedServer(0.2, 3);
    await server.send(160, 5);
    let alone = 0;
    for (let time = 0; time < 40; time++) {
      server.batchMs = time % 5 === 0 ? 3 : 60;
      alone += await server.send(160, 1);
    }
    expect(alone).toBeLessThan(4);
  });

  it("finds out when a server has become faster", async () => {
    const server = new TimedServer(0.3, 3);
    await server.send(50, 200);
    server.aloneMs = 0.03;
    await server.send(50, 256);
    expect(await server.send(50, 100)).toBeGreaterThan(90);
  });
});
