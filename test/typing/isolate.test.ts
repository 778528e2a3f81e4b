// Types flow from the contract to handlers in processes of their own, and to what stays of them in the worker.
import {
  connect,
  defineJob,
  defineService,
  InvalidHandler,
  type IsolatedHandler,
  terminate,
  versions,
} from "millrace";
import { expect, expectTypeOf, it, onTestFinished } from "vitest";
import { z } from "zod";

const video = defineService("video", {
  transcode: defineJob({
    payload: z.object({ file: z.string(), since: z.coerce.date() }),
    result: z.object({ frames: z.number() }),
    continuations: ["publish"],
    isolate: true,
  }),
  publish: defineJob({ payload: z.object({ frames: z.number() }) }),
  probe: defineJob({ payload: z.string(), continuations: ["publish"], isolate: true }),
  resize: versions(
    defineJob({ payload: z.string(), result: z.number(), isolate: true }),
    defineJob({ payload: z.object({ url: z.string() }), version: 2, isolate: true }),
  ),
});

it("a module's handler gets what was stored, and gives the result", () => {
  const transcode: IsolatedHandler<typeof video.jobs.transcode> = async (job) => {
    // A date has become a string on its way into the process.
    expectTypeOf(job.payload).toEqualTypeOf<{ file: string; since: string }>();
    await job.progress({ current: 1 });
    // @ts-expect-error: transactions are the worker's.
    void job.complete;
    return job.tries > 1 ? terminate("no") : { frames: 1 };
  };
  // @ts-expect-error: the result has frames.
  const wrong: IsolatedHandler<typeof video.jobs.transcode> = () => ({ images: 1 });
  const resize: IsolatedHandler<typeof video.jobs.resize> = (job) => job.payload.url;
  const first: IsolatedHandler<typeof video.jobs.resize, 1> = (job) => job.payload.length;
  expectTypeOf<[typeof transcode, typeof wrong, typeof resize, typeof first]>().toBeArray();
});

it("what stays in the worker is typed by the contract", async () => {
  const service = await connect(video, { url: "memory:" });
  onTestFinished(() => service.stop());
  const module = new URL("./transcode.js", import.meta.url);
  service.jobs.transcode.handle({
    module,
    prepare: ({ job }) => job.payload.file,
    complete: ({ value, job, continueWith }) => {
      expectTypeOf(value).toEqualTypeOf<{ frames: number }>();
      expectTypeOf(job.payload.since).toEqualTypeOf<Date>();
      return value.frames > 0 ? continueWith("publish", value) : value;
    },
  });
  service.jobs.resize.version(1).handle({ exec: (payload) => ["resize", payload.trim()] });
  service.handle({ resize: { exec: ({ url }) => ["resize", url] } });
});

it("what always continues says how, in the worker", async () => {
  const service = await connect(video, { url: "memory:" });
  onTestFinished(() => service.stop());
  const exec = ["ffprobe", "{payload}"];
  // @ts-expect-error: nothing says how a probe continues.
  expect(() => service.jobs.probe.handle({ exec })).toThrow(InvalidHandler);
  // @ts-expect-error: the same for several at once.
  expect(() => service.handle({ probe: { exec } })).toThrow(InvalidHandler);
  service.jobs.probe.handle({
    exec,
    complete: ({ value, job, continueWith }) => {
      expectTypeOf(value).toBeUnknown();
      expectTypeOf(job.payload).toEqualTypeOf<string>();
      return continueWith("publish", { frames: Number(value) });
    },
  });
});
