/**
 * Telemetry through `@opentelemetry/api`, which is optional. The API alone does nothing: the process may register an SDK
 * before or after it connects, and until then there is no recorder.
 */
import type * as api from "@opentelemetry/api";
import type { MeterProvider, TracerProvider } from "@opentelemetry/api";
import type { Clock } from "../../engine/clock.js";
import type { Recorder, Telemetry } from "../telemetry.js";
import { Instruments } from "./instruments.js";
import { OpenTelemetryRecorder } from "./recorder.js";

/** What telemetry is made of. */
export interface OpenTelemetryOptions {
  readonly clock: Clock;
  /** The name of this process among those of the service. */
  readonly instance: string;
  /** The version of Millrace. */
  readonly version: string;
}

/** Telemetry through the API if the process has it, `null` otherwise. */
export async function openTelemetry(options: OpenTelemetryOptions): Promise<Telemetry | null> {
  const api = await import("@opentelemetry/api").catch(() => null);
  return api && new OpenTelemetry(api, options);
}

class OpenTelemetry implements Telemetry {
  readonly #api: typeof api;
  readonly #options: OpenTelemetryOptions;
  /** What stands where no SDK is registered. */
  readonly #idle: TracerProvider;
  /** The providers that the recorder was made for. */
  #tracers: TracerProvider | undefined;
  #meters: MeterProvider | undefined;
  #recorder: Recorder | null = null;

  constructor(library: typeof api, options: OpenTelemetryOptions) {
    this.#api = library;
    this.#options = options;
    this.#idle = new library.ProxyTracerProvider().getDelegate();
  }

  recorder(): Recorder | null {
    const { trace, metrics, ProxyTracerProvider } = this.#api;
    const proxy = trace.getTracerProvider();
    const tracers = proxy instanceof ProxyTracerProvider ? proxy.getDelegate() : proxy;
    const meters = metrics.getMeterProvider();
    if (tracers !== this.#tracers || meters !== this.#meters)
      this.#recorder = this.#made(tracers, meters);
    return this.#recorder;
  }

  /** Another SDK was registered, or taken away. */
  #made(tracers: TracerProvider, meters: MeterProvider): Recorder | null {
    const api = this.#api;
    const { clock, instance, version } = this.#options;
    this.#tracers = tracers;
    this.#meters = meters;
    if (tracers === this.#idle && meters.getMeter("millrace") === api.createNoopMeter())
      return null;
    const tracer = tracers.getTracer("millrace", version);
    const instruments = new Instruments(meters, version);
    return new OpenTelemetryRecorder({ api, tracer, instruments, clock, instance });
  }
}
