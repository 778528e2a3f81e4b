/**
 * Spans and metrics of a process, by the messaging conventions of OpenTelemetry.
 *
 *   send (producer)     a call that creates jobs; they carry its trace
 *   receive (client)    a claim that gave jobs, linked to their creators
 *   process (consumer)  a try: a child of the span that created its job, and linked to it
 *   settle (client)     outcomes are stored, linked to the creators of the jobs
 */
import type * as api from "@opentelemetry/api";
import type { Context, Link, Span, SpanContext, Tracer } from "@opentelemetry/api";
import { contextFrom } from "../../core/context.js";
import type { Job, JobContext } from "../../core/job.js";
import type { Clock } from "../../engine/clock.js";
import type { ClaimAnswer } from "../../engine/engine.js";
import type { Recorder, SendAsk, Sent, Served, ServedRequest, Tried } from "../telemetry.js";
import { batchOf, identityOf, namesOf } from "./attributes.js";
import type { Instruments } from "./instruments.js";

/** The most links of a span; of a larger batch the first jobs are named. */
const linksMax = 128;

/** Answers from this status on are the server's fault. */
const serverErrorMin = 500;

/** What a recorder works with. */
export interface RecorderParts {
  readonly api: typeof api;
  readonly tracer: Tracer;
  readonly instruments: Instruments;
  readonly clock: Clock;
  /** The name of this process among those of the service. */
  readonly instance: string;
}

/** Records through the API of OpenTelemetry. */
export class OpenTelemetryRecorder implements Recorder {
  readonly #parts: RecorderParts;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
  }

  send<Value>(ask: SendAsk, work: () => Value, sentOf: (value: Awaited<Value>) => Sent): Value {
    const { api, instruments } = this.#parts;
    const names = namesOf("send", ask);
    const parent = this.#parentOf(ask.context) ?? api.context.active();
    const span = this.#start(`send ${ask.queue}`, parent, {
      kind: api.SpanKind.PRODUCER,
      attributes: {
        ...this.#named(names),
        ...(ask.batch === undefined ? null : { "messaging.batch.message_count": ask.batch }),
      },
    });
    return this.#during(
      span,
      parent,
      work,
      (durationMs, value) => {
        const { sent, id, failures } = sentOf(value);
        if (id !== undefined) span.setAttribute("messaging.message.id", id);
        instruments.sent(sent, names);
        const [failure] = failures;
        if (failure === undefined) return instruments.operation(durationMs, names);
        const failed = { ...names, "error.type": failure.name };
        instruments.sent(failures.length, failed);
        instruments.operation(durationMs, sent > 0 ? names : failed);
        this.#fail(span, failure.name, failure.message);
      },
      (durationMs, type) => instruments.operation(durationMs, { ...names, "error.type": type }),
    );
  }

  async receive(work: () => Promise<ClaimAnswer>): Promise<ClaimAnswer> {
    const { api, instruments, clock } = this.#parts;
    const startTime = clock.monotonic();
    const answer = await work();
    const jobs = answer.jobs.map(({ job }) => job);
    if (jobs.length === 0) return answer;
    const endTime = clock.monotonic();
    const names = batchOf("receive", jobs);
    // Idle workers ask all the time, so that the span is made when it is known that there is something to tell.
    const span = this.#start(spanName("receive", names), api.ROOT_CONTEXT, {
      kind: api.SpanKind.CLIENT,
      attributes: { ...this.#named(names), "messaging.batch.message_count": jobs.length },
      links: this.#links(jobs),
      startTime,
    });
    this.#record(() => {
      span.end(endTime);
      instruments.operation(endTime - startTime, names);
      for (const [name, some] of byType(jobs)) instruments.consumed(some, namesOf("receive", name));
    });
    return answer;
  }

  process<Value>(
    job: Job,
    work: () => Promise<Value>,
    triedOf: (value: Value) => Tried,
  ): Promise<Value> {
    const { api, instruments } = this.#parts;
    const names = namesOf("process", job);
    const parent = this.#parentOf(job.context) ?? api.ROOT_CONTEXT;
    const span = this.#start(`process ${job.queue}`, parent, {
      kind: api.SpanKind.CONSUMER,
      attributes: { ...this.#named(names), ...identityOf(job) },
      links: this.#links([job]),
    });
    return this.#during(
      span,
      parent,
      work,
      (durationMs, value) => {
        instruments.waited((job.startedAt ?? job.runAt) - job.runAt, names);
        const { outcome, error } = triedOf(value as Value);
        span.setAttribute("millrace.try.outcome", outcome);
        if (error === undefined) return instruments.processed(durationMs, names);
        instruments.processed(durationMs, { ...names, "error.type": error.reason });
        this.#fail(span, error.reason, error.message);
      },
      (durationMs, type) => instruments.processed(durationMs, { ...names, "error.type": type }),
    );
  }

  thrown(error: unknown): void {
    const span = this.#parts.api.trace.getActiveSpan();
    this.#record(() => span?.recordException(error instanceof Error ? error : String(error)));
  }

  settle<Value>(jobs: readonly Job[], work: () => Value): Value {
    const { api, instruments } = this.#parts;
    const names = batchOf("settle", jobs);
    const [first] = jobs;
    const isOne = jobs.length === 1 && first !== undefined;
    const parent = (isOne ? this.#parentOf(first.context) : null) ?? api.ROOT_CONTEXT;
    const span = this.#start(spanName("settle", names), parent, {
      kind: api.SpanKind.CLIENT,
      attributes: {
        ...this.#named(names),
        ...(isOne ? identityOf(first) : { "messaging.batch.message_count": jobs.length }),
      },
      links: this.#links(jobs),
    });
    return this.#during(
      span,
      parent,
      work,
      (durationMs) => instruments.operation(durationMs, names),
      (durationMs, type) => instruments.operation(durationMs, { ...names, "error.type": type }),
    );
  }

  serve<Value>(
    request: ServedRequest,
    work: () => Promise<Value>,
    servedOf: (value: Value) => Served,
  ): Promise<Value> {
    const { api } = this.#parts;
    // Where the process instruments its HTTP server itself, the request has its span already.
    if (api.trace.getActiveSpan() !== undefined) return work();
    const { method, path } = request;
    const parent = this.#parentOf(request) ?? api.ROOT_CONTEXT;
    const attributes = { "http.request.method": method, "url.path": path };
    const span = this.#start(method, parent, { kind: api.SpanKind.SERVER, attributes });
    return this.#during(
      span,
      parent,
      work,
      (_durationMs, value) => {
        const { status, route } = servedOf(value as Value);
        span.updateName(`${method} ${route}`);
        span.setAttributes({ "http.route": route, "http.response.status_code": status });
        if (status >= serverErrorMin) this.#fail(span, String(status), "");
      },
      () => {},
    );
  }

  /** Runs work within a span and ends it, at once or when the work is done. */
  #during<Value>(
    span: Span,
    parent: Context,
    work: () => Value,
    onDone: (durationMs: number, value: Awaited<Value>) => void,
    onFailed: (durationMs: number, type: string) => void,
  ): Value {
    const { api, clock } = this.#parts;
    const startedAt = clock.monotonic();
    const done = (value: Awaited<Value>) => {
      this.#record(() => onDone(clock.monotonic() - startedAt, value));
      this.#record(() => span.end());
      return value;
    };
    const failed = (thrown: unknown): never => {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      this.#record(() => {
        onFailed(clock.monotonic() - startedAt, error.name);
        span.recordException(error);
        this.#fail(span, error.name, error.message);
      });
      this.#record(() => span.end());
      throw thrown;
    };
    let value: Value;
    try {
      value = api.context.with(api.trace.setSpan(parent, span), work);
    } catch (error) {
      return failed(error);
    }
    if (!(value instanceof Promise)) return done(value as Awaited<Value>);
    return value.then(done, failed) as Value;
  }

  #start(name: string, parent: Context, options: api.SpanOptions): Span {
    const { api, tracer } = this.#parts;
    const none = api.trace.wrapSpanContext(api.INVALID_SPAN_CONTEXT);
    return this.#record(() => tracer.startSpan(name, options, parent)) ?? none;
  }

  /** Samplers, processors and exporters are the user's own. What they throw must not touch a job. */
  #record<Value>(tell: () => Value): Value | undefined {
    try {
      return tell();
    } catch (error) {
      this.#parts.api.diag.error("Millrace could not record what it did.", error);
      return undefined;
    }
  }

  /** The attributes of a span say also which process it is; those of metrics need not. */
  #named(names: api.Attributes): api.Attributes {
    return { ...names, "messaging.client.id": this.#parts.instance };
  }

  #fail(span: Span, type: string, message: string): void {
    span.setAttribute("error.type", type);
    span.setStatus({ code: this.#parts.api.SpanStatusCode.ERROR, message });
  }

  #links(jobs: readonly Job[]): Link[] {
    return jobs.slice(0, linksMax).flatMap(({ id, context }) => {
      const creator = this.#spanOf(context);
      return creator === null
        ? []
        : [{ context: creator, attributes: { "messaging.message.id": id } }];
    });
  }

  /** The trace that somebody else began, as the parent of what is done here. */
  #parentOf(given: Partial<JobContext> | undefined): Context | null {
    const { api } = this.#parts;
    const span = given === undefined ? null : this.#spanOf(given);
    return span && api.trace.setSpanContext(api.ROOT_CONTEXT, span);
  }

  #spanOf({ traceparent = "", tracestate }: Partial<JobContext>): SpanContext | null {
    const context = contextFrom("", traceparent, tracestate);
    if (context === null) return null;
    const [, traceId = "", spanId = "", flags = ""] = traceparent.split("-");
    return {
      traceId,
      spanId,
      traceFlags: Number.parseInt(flags, 16),
      isRemote: true,
      ...(tracestate ? { traceState: this.#parts.api.createTraceState(tracestate) } : null),
    };
  }
}

/** The operation, and the queue if it is one. */
function spanName(operation: string, names: api.Attributes): string {
  const queue = names["messaging.destination.name"];
  return queue === undefined ? operation : `${operation} ${queue}`;
}

/** How many jobs there are of each type. */
function byType(jobs: readonly Job[]): ReadonlyMap<Job, number> {
  const firsts = new Map<string, Job>();
  const counts = new Map<Job, number>();
  for (const job of jobs) {
    const name = `${job.service}/${job.queue}/${job.type}`;
    const first = firsts.get(name) ?? job;
    firsts.set(name, first);
    counts.set(first, (counts.get(first) ?? 0) + 1);
  }
  return counts;
}
