// The view for pipes and files: a line now and then, and one for each thing worth telling.
import { jobStates } from "millrace";
import type { Traffic } from "./customers.js";
import { detailOf } from "./happening.js";
import { shortId, type View } from "./live-view.js";
import { duration, grouped } from "./paint.js";
import type { Picture } from "./watch.js";

const lineEveryMs = 1_000;

/** How many events are told at a time; the rest is counted. */
const toldMax = 5;

/** Writes lines. */
export class PlainView implements View {
  #lastLineMs = Number.NEGATIVE_INFINITY;
  #told = 0;

  constructor(title: string) {
    console.log(title);
  }

  show(picture: Picture, traffic: Traffic, elapsedMs: number): void {
    if (elapsedMs - this.#lastLineMs < lineEveryMs) return;
    this.#lastLineMs = elapsedMs;
    const { counts, throughput } = picture;
    const states = jobStates.filter((state) => counts[state] > 0);
    const numbers = [
      `${grouped(traffic.created)} created`,
      ...states.map((state) => `${grouped(counts[state])} ${state}`),
    ];
    console.log(
      `${duration(elapsedMs).padStart(7)}  ${numbers.join(", ")}; ${grouped(throughput)} jobs/s`,
    );
    this.#tell(picture);
  }

  say(text: string): void {
    console.log(text);
  }

  stop(): void {}

  #tell({ notable, seen }: Picture): void {
    const fresh = seen - this.#told;
    this.#told = seen;
    if (fresh === 0) return;
    for (const event of notable.slice(-Math.min(fresh, toldMax))) {
      console.log(
        `         ${event.type} ${shortId(event.jobId)} ${event.name}: ${detailOf(event)}`,
      );
    }
    if (fresh > toldMax) console.log(`         and ${fresh - toldMax} more events like these`);
  }
}
