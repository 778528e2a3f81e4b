/**
 * The live view: drawn in place on a terminal, sized to it, several times a second.
 */
import type { WriteStream } from "node:tty";
import { jobStates } from "../../core/job.js";
import { detailOf } from "../event-words.js";
import { bar, duration, grouped, type Paint, stateColours } from "./paint.js";
import { endedCount, type Picture, type Running } from "./watch.js";

const clearLine = "\u001b[2K";
const clearBelow = "\u001b[0J";
const hideCursor = "\u001b[?25l";
const showCursor = "\u001b[?25h";

const labelWidth = 11;
const typeWidth = 16;
const idWidth = 6;
const runningMax = 8;
const happenedMax = 8;

/** States that are shown even when no job is in them, so that the picture does not jump. */
const alwaysShown: ReadonlySet<string> = new Set(["pending", "active", "retry", "completed"]);

/** A view that is given pictures, one after another. */
export interface View {
  show(picture: Picture, elapsedMs: number): void;
  /** Says something once, above what comes next. */
  say(text: string): void;
  stop(): void;
}

/** Draws on a terminal. */
export class LiveView implements View {
  readonly #out: WriteStream;
  readonly #paint: Paint;
  readonly #title: string;
  #drawn = 0;

  constructor(out: WriteStream, paint: Paint, title: string) {
    this.#out = out;
    this.#paint = paint;
    this.#title = title;
    out.write(hideCursor);
  }

  show(picture: Picture, elapsedMs: number): void {
    const width = Math.max(this.#out.columns ?? 80, 40) - 1;
    const height = Math.max(this.#out.rows ?? 24, 10) - 1;
    const head = [...this.#heading(picture, elapsedMs, width), "", ...this.#states(picture, width)];
    const room = Math.max(height - head.length - 4, 2);
    const running = this.#running(picture, width, Math.min(runningMax, Math.ceil(room / 2)));
    const happened = this.#happened(picture, width, Math.min(happenedMax, room - running.length));
    this.#draw([...head, "", ...running, "", ...happened].slice(0, height));
  }

  say(text: string): void {
    this.#out.write(`${text}\n`);
    this.#drawn = 0;
  }

  stop(): void {
    this.#out.write(showCursor);
  }

  #draw(lines: readonly string[]): void {
    const up = this.#drawn > 0 ? `\u001b[${this.#drawn}A` : "";
    const text = lines.map((line) => `\r${clearLine}${line}\n`).join("");
    this.#out.write(`${up}${text}${clearBelow}`);
    this.#drawn = lines.length;
  }

  #heading(picture: Picture, elapsedMs: number, width: number): string[] {
    const { counts, created, throughput } = picture;
    const numbers = [
      duration(elapsedMs),
      `${grouped(created)} created`,
      `${grouped(endedCount(counts))} ended`,
      `${grouped(throughput)} jobs/s`,
    ];
    return [
      this.#paint("bold", shortened(this.#title, width)),
      shortened(numbers.join("  ·  "), width),
    ];
  }

  #states({ counts }: Picture, width: number): string[] {
    const shown = jobStates.filter((state) => counts[state] > 0 || alwaysShown.has(state));
    const most = Math.max(...shown.map((state) => counts[state]), 1);
    const barWidth = Math.max(width - labelWidth - 10, 5);
    return shown.map((state) => {
      const drawn = bar(counts[state] / most, barWidth).padEnd(barWidth);
      return `${state.padEnd(labelWidth)}${this.#paint(stateColours[state], drawn)} ${grouped(counts[state]).padStart(8)}`;
    });
  }

  #running({ running }: Picture, width: number, linesMax: number): string[] {
    const byProgress = [...running].sort(
      (a, b) =>
        Number(b.progress !== null) - Number(a.progress !== null) || a.startedAt - b.startedAt,
    );
    const fits = running.length <= linesMax ? running.length : linesMax - 1;
    const lines = byProgress.slice(0, fits).map((job) => this.#runningLine(job, width));
    const more = running.length - fits;
    return [
      this.#paint("bold", "running now"),
      ...lines,
      ...(more > 0 ? [this.#paint("dim", `and ${more} more`)] : []),
    ];
  }

  #runningLine({ id, type, tries, progress }: Running, width: number): string {
    const name = `${type.padEnd(typeWidth)} ${shortId(id)}  `;
    if (progress?.total === undefined || progress.current === undefined) {
      return shortened(`${name}${tries > 1 ? `try ${tries}` : ""}`, width);
    }
    const barWidth = Math.min(24, Math.max(width - name.length - 24, 5));
    const filled = bar(progress.current / progress.total, barWidth);
    const rest = ` ${progress.current}/${progress.total} ${progress.step ?? ""}`;
    const empty = "·".repeat(barWidth - filled.length);
    return `${name}${this.#paint("cyan", filled)}${this.#paint("dim", empty)}${shortened(rest, width - name.length - barWidth)}`;
  }

  #happened({ notable }: Picture, width: number, linesMax: number): string[] {
    const lines = notable.slice(-Math.max(linesMax, 0)).map((event) => {
      const start = `${event.type.padEnd(typeWidth)} ${shortId(event.jobId)}  `;
      const name = event.name.padEnd(15);
      const detail = shortened(
        ` ${detailOf(event)}`,
        Math.max(width - start.length - name.length, 0),
      );
      return `${start}${this.#paint(stateColours[event.state], name)}${detail}`;
    });
    return [this.#paint("bold", "what happened"), ...lines];
  }
}

/** The end of an id, which differs where the beginning is only the time. */
export function shortId(id: string): string {
  return id.slice(-idWidth);
}

/** Text that takes no more than a width. */
function shortened(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(width - 1, 0))}…`;
}
