/**
 * The lanes of types that no contract names. Whoever creates a job in such a lane records the lane first, so that workers
 * with routes know of it: a record may name a lane that no job is in, but no job is in a lane that no record names.
 */
import type { Json } from "../core/json.js";
import type { Engine } from "../engine/engine.js";
import { recordId } from "../engine/record.js";
import { InvalidOption } from "./errors.js";
import type { Runtime } from "./runtime.js";

/** How many lanes of types that no contract names a service may have. */
const lanesMax = 1_000;

/** Where jobs of one version of a type line up. */
export interface UnnamedLane {
  readonly queue: string;
  readonly type: string;
  readonly version: number;
}

/** Records lanes, each once for this process. */
export class UnnamedLanes {
  readonly #runtime: Runtime;
  readonly #known = new Set<string>();
  /** Called with each lane that this process has recorded. */
  onRecorded: ((lane: UnnamedLane) => void) | undefined;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Whether the lane is recorded already, as far as this process knows. */
  has({ queue, type, version }: UnnamedLane): boolean {
    return this.#known.has(recordId.lane(this.#runtime.service, queue, type, version));
  }

  /** Records a lane. Gives why it cannot be. */
  async record(lane: UnnamedLane): Promise<InvalidOption | null> {
    const { engine, service } = this.#runtime;
    const { queue, type, version } = lane;
    const id = recordId.lane(service, queue, type, version);
    const [found] = await engine.records([id]);
    if (!found) {
      const lanes = await unnamedLanes(engine, service);
      if (lanes.length >= lanesMax) return tooMany(type);
      // Who was faster has recorded the same.
      await engine.swap([{ id, expect: 0, body: { queue, type, version } }]);
    }
    this.#known.add(id);
    this.onRecorded?.(lane);
    return null;
  }
}

/** The lanes of a service whose types no contract named when a job was created. */
export async function unnamedLanes(
  engine: Engine,
  service: string,
): Promise<readonly UnnamedLane[]> {
  const records = await engine.query("records", {
    prefix: recordId.lanes(service),
    limit: lanesMax,
  });
  return records.flatMap(({ body }) => (isLane(body) ? [body] : []));
}

/** A record of a newer version may have another shape; it is left out and not misread. */
function isLane(body: Json): body is UnnamedLane & Json {
  if (typeof body !== "object" || body === null) return false;
  const { queue, type, version } = body as Partial<UnnamedLane>;
  return typeof queue === "string" && typeof type === "string" && typeof version === "number";
}

function tooMany(type: string): InvalidOption {
  const message = `${type} is one type too many that no contract names; a service may have ${lanesMax}. Put what differs into the payload.`;
  return new InvalidOption({ field: "type", message });
}
