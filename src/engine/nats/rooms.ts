/**
 * The room that is left under caps while a claim looks for jobs. Counting waits for the read model, and so nobody
 * counts before there is a ticket, unless the cap was full when it was last counted: tickets that have to be given
 * back are delivered once more each time, and the server gives up on those that were delivered too often.
 */
import type { ClaimLane } from "../engine.js";
import { type CapScope, type Caps, capsOf } from "./caps.js";

/** What counting needs of the engine. */
export interface RoomsContext {
  readonly caps: Caps;
  readonly now: () => number;
  /** How many jobs run under a cap by the read model. */
  readonly activeUnder: (scope: CapScope) => Promise<number>;
}

/** A cap with the room that is left under it in one claim. Lanes may share it. */
export interface Room extends CapScope {
  readonly id: string;
  max: number;
  /** Before it is counted, all of it. */
  left: number;
  isCounted: boolean;
}

/** The caps of a process, as its claims have found them. */
export class Rooms {
  readonly #context: RoomsContext;
  /** The caps that were full when they were last counted. */
  readonly #full = new Set<string>();

  constructor(context: RoomsContext) {
    this.#context = context;
  }

  /** Whether a lane counts under a cap that was full. */
  isTight(lane: ClaimLane): boolean {
    return this.#full.size > 0 && capsOf(lane).some(({ id }) => this.#full.has(id));
  }

  /** The rooms of some lanes for one claim; those that were full are counted. */
  async open(lanes: readonly ClaimLane[]): Promise<ReadonlyMap<string, Room>> {
    const rooms = new Map<string, Room>();
    for (const { id, max, ...scope } of lanes.flatMap(capsOf)) {
      const least = Math.min(max, rooms.get(id)?.max ?? max);
      rooms.set(id, { ...scope, id, max: least, left: least, isCounted: false });
    }
    await this.count([...rooms.values()].filter(({ id }) => this.#full.has(id)));
    return rooms;
  }

  /** Counts the room under caps where nobody has. Jobs that were started where nobody knew of the cap count, too. */
  async count(rooms: readonly Room[]): Promise<void> {
    await Promise.all(rooms.map((room) => (room.isCounted ? undefined : this.#count(room))));
  }

  async #count(room: Room): Promise<void> {
    const { caps, activeUnder, now } = this.#context;
    const places = await caps.places(room.id, now());
    const counted = places.filter(({ until }) => until === undefined).length;
    const uncounted = Math.max(0, (await activeUnder(room)) - counted);
    room.max -= uncounted;
    room.left = room.max - places.length;
    room.isCounted = true;
  }

  /** Remembers after a claim what is full. */
  remember(rooms: Iterable<Room>): void {
    for (const { id, left, isCounted } of rooms) {
      if (!isCounted) continue;
      if (left > 0) this.#full.delete(id);
      else this.#full.add(id);
    }
  }
}
