// The service of the benchmark of the HTTP API.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

export const mailer = defineService("mailer", {
  send: defineJob({ payload: z.object({ to: z.string() }), concurrency: 50 }),
});
