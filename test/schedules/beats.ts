// The contract of the failover test: two schedules of short intervals, of whose jobs one kind is not kept at all.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

const payload = z.object({});

export const everyMs = 200;

export const beats = defineService(
  "beats",
  {
    kept: defineJob({ payload }),
    gone: defineJob({ payload, retention: { completed: 0 } }),
  },
  {
    schedules: {
      kept: { type: "kept", payload: {}, everyMs },
      gone: { type: "gone", payload: {}, everyMs },
    },
  },
);
