/**
 * A projection in a SQLite file, which threads of their own have open.
 */
import type { Clock } from "../clock.js";
import { Channel } from "../sqlite/channel.js";
import { filePath } from "../sqlite/engine.js";
import type { Operation } from "../sqlite/protocol.js";
import { WakeListeners } from "../sqlite/wake.js";
import type { Read, Reads } from "./reads.js";
import type { ProjectionStore } from "./store.js";
import type { Writes } from "./writes.js";

const thread = new URL("./thread.js", import.meta.url);

export class SqliteProjectionStore implements ProjectionStore {
  readonly url: string;
  readonly #path: string;
  readonly #now: () => number;
  readonly #writer: Channel<Operation>;
  readonly #wake: WakeListeners;
  #reader: Channel<Read> | null = null;

  constructor(url: string, clock: Clock) {
    this.url = url;
    this.#path = filePath(url);
    this.#now = () => clock.now();
    this.#wake = new WakeListeners(this.#path);
    this.#writer = new Channel<Operation>({
      url,
      thread,
      path: this.#path,
      role: "writer",
      now: this.#now,
      onWoke: (woke) => {
        if (woke.ready) this.#wake.hint("ready");
      },
    });
  }

  open(): Promise<void> {
    return this.#writer.opened();
  }

  async write<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]> {
    const [answer] = (await this.#writer.call({ kind, items: [ask] })) as Writes[Kind]["answer"][];
    return answer as Writes[Kind]["answer"];
  }

  async read<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]> {
    if (this.#reader?.isDead) this.#reader = null;
    this.#reader ??= new Channel<Read>({
      url: this.url,
      thread,
      path: this.#path,
      role: "reader",
      now: this.#now,
    });
    return (await this.#reader.call({ kind, ask } as Read)) as Reads[Kind]["answer"];
  }

  listen(on: () => void): void {
    this.#wake.listen("ready", on);
  }

  async close(): Promise<void> {
    await this.#reader?.close();
    await this.#writer.close();
    this.#wake.close();
  }
}
