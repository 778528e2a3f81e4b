/**
 * The metrics that a process gives to OpenTelemetry: names and units of the messaging conventions, and one of our own.
 * Their attributes name queues and types, never ids or keys, so that there are few of them.
 */
import type { Attributes, Counter, Histogram, MeterProvider } from "@opentelemetry/api";

/** The bounds of durations in seconds, as the conventions advise. */
const durationBounds = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];

/** Jobs may wait, and run, for much longer than a call takes. */
const longBounds = [...durationBounds, 30, 60, 300, 1_800, 3_600];

/** What is measured. Durations are given in milliseconds and recorded in seconds. */
export class Instruments {
  readonly #sent: Counter;
  readonly #consumed: Counter;
  readonly #operations: Histogram;
  readonly #processing: Histogram;
  readonly #waiting: Histogram;

  constructor(provider: MeterProvider, version: string) {
    const meter = provider.getMeter("millrace", version);
    const seconds = (name: string, description: string, bounds: number[]) =>
      meter.createHistogram(name, {
        unit: "s",
        description,
        advice: { explicitBucketBoundaries: bounds },
      });
    this.#sent = meter.createCounter("messaging.client.sent.messages", {
      unit: "{message}",
      description: "Jobs that were created, or were to be.",
    });
    this.#consumed = meter.createCounter("messaging.client.consumed.messages", {
      unit: "{message}",
      description: "Jobs that were claimed.",
    });
    this.#operations = seconds(
      "messaging.client.operation.duration",
      "How long creates, claims and settlements take.",
      durationBounds,
    );
    this.#processing = seconds("messaging.process.duration", "How long tries take.", longBounds);
    this.#waiting = seconds(
      "millrace.job.wait",
      "How long jobs wait from their run time to their start.",
      longBounds,
    );
  }

  sent(count: number, attributes: Attributes): void {
    if (count > 0) this.#sent.add(count, attributes);
  }

  consumed(count: number, attributes: Attributes): void {
    this.#consumed.add(count, attributes);
  }

  operation(durationMs: number, attributes: Attributes): void {
    this.#operations.record(durationMs / 1_000, attributes);
  }

  processed(durationMs: number, attributes: Attributes): void {
    this.#processing.record(durationMs / 1_000, attributes);
  }

  waited(durationMs: number, attributes: Attributes): void {
    this.#waiting.record(Math.max(durationMs, 0) / 1_000, attributes);
  }
}
