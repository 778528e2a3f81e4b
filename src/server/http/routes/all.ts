/**
 * All routes, in the order in which the documents show them.
 */
import type { Route } from "../route.js";
import { auditRoutes } from "./audit.js";
import { chainRoutes } from "./chains.js";
import { contractRoutes } from "./contracts.js";
import { createRoutes } from "./creates.js";
import { deadLetterRoutes } from "./dead-letters.js";
import { eventRoutes } from "./events.js";
import { jobRoutes } from "./job.js";
import { keyRoutes } from "./keys.js";
import { listRoutes } from "./lists.js";
import { metaRoutes } from "./meta.js";
import { queueRoutes } from "./queues.js";
import { scheduleRoutes } from "./schedules.js";
import { serviceRoutes } from "./services.js";
import { tokenRoutes } from "./tokens.js";
import { webhookRoutes } from "./webhooks.js";
import { workRoutes } from "./work.js";

/** Every route of the API but its own description. */
export const routes: readonly Route[] = [
  ...metaRoutes,
  ...createRoutes,
  ...listRoutes,
  ...jobRoutes,
  ...eventRoutes,
  ...deadLetterRoutes,
  ...queueRoutes,
  ...keyRoutes,
  ...serviceRoutes,
  ...chainRoutes,
  ...contractRoutes,
  ...scheduleRoutes,
  ...webhookRoutes,
  ...tokenRoutes,
  ...auditRoutes,
  ...workRoutes,
];
