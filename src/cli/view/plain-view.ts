/**
 * The view for pipes and files: a line now and then while something happens, and one for each thing worth telling.
 */
import { jobStates } from "../../core/job.js";
import { detailOf } from "../event-words.js";
import { shortId, type View } from "./live-view.js";
import { duration, grouped } from "./paint.js";
import type { Picture } from "./watch.js";

const lineEveryMs = 1_000;

/** How many events are told at a time; the rest is counted. */
const toldMax = 5;

/** Writes lines. */
export class PlainView implements View {
  #lastLineMs = Number.NEGATIVE_INFINITY;
  #lastLine = "";
  #told = 0;
  readonly #write: (line: string) => void;

  constructor(write: (line: string) => void, title: string) {
    this.#write = write;
    write(title);
  }

  show(picture: Picture, elapsedMs: number): void {
    if (elapsedMs - this.#lastLineMs < lineEveryMs) return;
    this.#lastLineMs = elapsedMs;
    const { counts, created, throughput } = picture;
    const states = jobStates.filter((state) => counts[state] > 0);
    const numbers = [
      `${grouped(created)} created`,
      ...states.map((state) => `${grouped(counts[state])} ${state}`),
    ];
    const line = numbers.join(", ");
    // What stands still is said once.
    if (line !== this.#lastLine) {
      const time = duration(elapsedMs).padStart(7);
      this.#write(`${time}  ${line}; ${grouped(throughput)} jobs/s`);
    }
    this.#lastLine = line;
    this.#tell(picture);
  }

  say(text: string): void {
    this.#write(text);
  }

  stop(): void {}

  #tell({ notable, seen }: Picture): void {
    const fresh = seen - this.#told;
    this.#told = seen;
    if (fresh === 0) return;
    for (const event of notable.slice(-Math.min(fresh, toldMax))) {
      this.#write(
        `         ${event.type} ${shortId(event.jobId)} ${event.name}: ${detailOf(event)}`,
      );
    }
    if (fresh > toldMax) this.#write(`         and ${fresh - toldMax} more events like these`);
  }
}
