// A real OpenTelemetry SDK whose exporter keeps what it is given, registered for one test.
import { context, metrics, trace } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-node";
import { onTestFinished } from "vitest";

/** The spans that have ended, oldest first. */
export interface RecordedSpans {
  all(): readonly ReadableSpan[];
  /** The only span of this name. */
  only(name: string): ReadableSpan;
  named(name: string): readonly ReadableSpan[];
}

/** Registers tracing until the test ends. */
export function recordSpans(): RecordedSpans {
  const exporter = new InMemorySpanExporter();
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  provider.register();
  onTestFinished(async () => {
    await provider.shutdown();
    trace.disable();
    context.disable();
  });
  const named = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);
  return {
    all: () => exporter.getFinishedSpans(),
    named,
    only: (name) => {
      const [span, ...more] = named(name);
      if (span === undefined || more.length > 0) {
        const names = exporter.getFinishedSpans().map((each) => each.name);
        throw new Error(`There is not one span ${name}, but: ${names.join(", ")}`);
      }
      return span;
    },
  };
}

/** One measured thing: the attributes, and a sum or the count of a histogram. */
export interface RecordedPoint {
  readonly name: string;
  readonly unit: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly value: number | { readonly count: number };
}

/** Registers metrics until the test ends; gives what was measured so far. */
export function recordMetrics(): () => Promise<readonly RecordedPoint[]> {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const provider = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(provider);
  onTestFinished(async () => {
    await provider.shutdown();
    metrics.disable();
  });
  return async () => {
    await reader.forceFlush();
    const newest = exporter.getMetrics().at(-1);
    return (newest?.scopeMetrics ?? []).flatMap((scope) =>
      scope.metrics.flatMap(({ descriptor, dataPoints }) =>
        dataPoints.map(({ attributes, value }) => ({
          name: descriptor.name,
          unit: descriptor.unit,
          attributes,
          value: typeof value === "number" ? value : { count: value.count },
        })),
      ),
    );
  };
}
