// Text that stores and wires have stumbled over, in every place where a caller can put some, on every store: it is kept
// as it is, or refused, and never a fault of the server.
import { describe, expect, it } from "vitest";
import { type Api, apiStores, freshService, sharedServers } from "./api.js";

const texts = [
  "a\u0000b",
  "\u0000",
  "\ud800",
  "x\udfffy",
  "\u2028",
  "𝒳🦊",
  "\\u0000",
  "%00",
  "'\"`;--",
];

/** Every request in which a caller may place some text of its own. */
async function placed(api: Api, service: string, text: string): Promise<readonly number[]> {
  const job = { service, type: "mail", payload: { text, [text]: [text] } };
  const encoded = encodeURIComponent(Buffer.from(text).toString());
  const created = await api.post("/v1/jobs", { ...job, maxTries: 1 });
  expect(created.status).toBe(201);
  const { id } = created.body;
  const { token } = await api.claimOne(service, "mail");
  const work = `/v1/work/jobs/${id}`;
  const error = { message: text, name: text, code: text };
  const progress = { step: text, message: text };
  const settled = async () => api.settle(id, token, { outcome: "failed", error });
  const answers = [
    await api.post("/v1/jobs", { ...job, tags: [text] }),
    await api.post("/v1/jobs", { ...job, idempotencyKey: text }),
    await api.post("/v1/jobs", { ...job, context: { requestId: text, tracestate: text } }),
    await api.post(`${work}/progress`, { token, progress }),
    await api.post(`${work}/logs`, { token, entries: [{ message: text }] }),
    await settled(),
    await api.post(`/v1/dead-letters/${id}/dismiss`, { reason: text }),
    await api.post("/v1/dead-letters/replay", { filter: { service, tag: text, key: text, text } }),
    await api.get(`/v1/jobs?service=${service}&tag=${encoded}`),
    await api.get(`/v1/jobs?service=${service}&key=${encoded}`),
    await api.get(`/v1/jobs?service=${service}&text=${encoded}`),
    await api.get(`/v1/events?service=${service}&name=${encoded}`),
    await api.get(`/v1/jobs/${encoded}`),
  ];
  const { body } = await api.get(`/v1/jobs/${id}`);
  expect(body.payload).toEqual(JSON.parse(JSON.stringify(job.payload)));
  return answers.map(({ status }) => status);
}

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it.each(texts.map((text) => ({ text, shown: JSON.stringify(text) })))(
    "$shown",
    async ({ text }) => {
      const statuses = await placed(servers.api, freshService(), text);
      expect(statuses.filter((status) => status >= 500)).toEqual([]);
    },
  );
});
