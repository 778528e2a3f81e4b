/**
 * Caps: how many jobs of a type or a queue may run in the whole cluster. A place is taken in a record before the
 * job starts, and given back after its outcome is stored.
 */
import type { ClaimLane } from "../engine.js";
import type { Records } from "./records.js";

/** A place under a cap. */
export interface CapPlace {
  readonly id: string;
  readonly token: number;
  /** When it was taken, so that one whose job never started can be told. */
  readonly since: number;
  /** The claim that took it. A job may be offered twice, and only one of the claims will start it. */
  readonly by: string;
  /** Its job was ended from outside: held until the worker confirms, or until then. */
  readonly until?: number;
}

type Places = readonly CapPlace[];

/** The jobs that a cap is about: those of a type, or of a queue. */
export interface CapScope {
  readonly service: string;
  readonly type?: string;
  readonly queue?: string;
}

/** A cap: its record, and how many it lets in. */
export interface Cap {
  readonly id: string;
  readonly max: number;
}

/** The caps that a lane counts under. */
export function capsOf(lane: ClaimLane): readonly (Cap & CapScope)[] {
  const { service, type, queue, typeMaxActive, queueMaxActive } = lane;
  const caps: (Cap & CapScope)[] = [];
  if (typeMaxActive !== undefined)
    caps.push({ id: `cap/${service}/type/${type}`, max: typeMaxActive, service, type });
  if (queueMaxActive !== undefined)
    caps.push({ id: `cap/${service}/queue/${queue}`, max: queueMaxActive, service, queue });
  return caps;
}

/** The caps of a deployment. */
export class Caps {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  /** Who holds places under a cap. */
  async places(id: string, now: number): Promise<Places> {
    const { record } = await this.#records.get(id);
    return standing((record?.body ?? []) as unknown as Places, now);
  }

  /** Takes places for as many jobs as there is room for; gives those that got one. */
  async take(cap: Cap, wanted: readonly CapPlace[], now: number): Promise<readonly CapPlace[]> {
    return this.#records.update<Places, readonly CapPlace[]>(cap.id, (body) => {
      const places = standing(body ?? [], now);
      const granted = wanted.slice(0, Math.max(0, cap.max - places.length));
      return { body: granted.length === 0 ? body : [...places, ...granted], extra: granted };
    });
  }

  /** Gives the places of a start back, whoever took them. */
  free(ids: readonly string[], jobId: string, token: number): Promise<void> {
    return this.#remove(ids, (place) => place.id === jobId && place.token === token);
  }

  /** Gives the places back that a claim has taken and does not need. */
  freeOf(ids: readonly string[], claim: string): Promise<void> {
    return this.#remove(ids, ({ by }) => by === claim);
  }

  /** Keeps the places of a job that was ended from outside, until its worker confirms or a time has come. */
  async hold(ids: readonly string[], jobId: string, token: number, until: number): Promise<void> {
    for (const id of ids) {
      await this.#change(id, (places) =>
        places.map((place) =>
          place.id === jobId && place.token === token ? { ...place, until } : place,
        ),
      );
    }
  }

  /** The worker of an ended job still holds it: its places stay for longer, unless they have lapsed. */
  async keepHolding(
    ids: readonly string[],
    jobId: string,
    token: number,
    until: number,
    now: number,
  ): Promise<void> {
    const isMeant = (place: CapPlace) =>
      place.id === jobId && place.token === token && (place.until ?? 0) > now;
    for (const id of ids) {
      await this.#change(id, (places) =>
        places.some(isMeant)
          ? places.map((place) => (isMeant(place) ? { ...place, until } : place))
          : places,
      );
    }
  }

  async #remove(ids: readonly string[], isMeant: (place: CapPlace) => boolean): Promise<void> {
    for (const id of ids)
      await this.#change(id, (places) =>
        places.some(isMeant) ? places.filter((place) => !isMeant(place)) : places,
      );
  }

  #change(id: string, change: (places: Places) => Places): Promise<void> {
    return this.#records.update<Places, void>(id, (body) => {
      const places = body ?? [];
      const next = change(places);
      return { body: next === places ? body : next, extra: undefined };
    });
  }
}

function standing(places: Places, now: number): Places {
  return places.filter(({ until }) => until === undefined || until > now);
}
