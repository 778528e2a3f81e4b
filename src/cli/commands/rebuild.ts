/**
 * `millrace rebuild`: makes the read model of a store anew from its log.
 */
import type { Command } from "commander";
import { define, type Run } from "../define.js";
import type { Session } from "../session.js";
import { storeFailure } from "../store-failure.js";
import { grouped } from "../view/paint.js";

const lookMs = 250;

/** Adds the command. */
export function addRebuild(program: Command, run: Run): void {
  define(program, run, {
    words: "rebuild",
    says: "make the lists of a nats: store anew from its log, also while jobs run",
    examples: ["millrace rebuild --url nats://localhost:4222"],
    run: async (session) => {
      const url = session.storeUrl("rebuild");
      if (/^(?:nats|tls):/i.test(url)) return rebuildNats(session, url);
      session.output.document(
        { rebuilt: false },
        () => "Nothing to rebuild: this store writes its lists together with its log.",
      );
    },
  });
}

async function rebuildNats({ output }: Session, url: string): Promise<void> {
  const { openNats } = await import("../../engine/nats/open.js");
  const engine = await openNats(url).catch((error: unknown) => {
    throw storeFailure(error);
  });
  try {
    const rebuilding = engine.rebuildView();
    const watch = setInterval(() => {
      engine.viewStatus().then(
        ({ position, lag }) => output.progress(`at ${grouped(position)}, ${grouped(lag)} to go`),
        () => {},
      );
    }, lookMs);
    await rebuilding.finally(() => clearInterval(watch));
    const { position, lag, ignored } = await engine.viewStatus();
    output.document(
      { rebuilt: true, position, lag, ignored },
      () => `Rebuilt up to position ${position}.`,
    );
  } catch (error) {
    throw storeFailure(error);
  } finally {
    await engine.close();
  }
}
