// A program that uses a client generated from the OpenAPI document. It is text, because the client is made by the test,
// which compiles and runs both in a folder of their own.
export const program = `import { Api } from "./client.js";

const client = new Api({ baseUrl: process.argv[2] ?? "" });
const { v1 } = client;

const created = await v1.createJob({ service: "shop", type: "mail", payload: { to: "a" } });
const { id, outcome } = created.data;
const types = [{ type: "mail" }];
const claimed = await v1.claimJobs({ service: "shop", worker: "w-1", types });
const [first] = claimed.data.jobs;
if (first !== undefined)
  await v1.settleJob(first.job.id, {
    token: first.token,
    outcome: "completed",
    result: { sent: true },
  });
const job = await v1.getJob(id);
const listed = await v1.listJobs({ service: "shop", state: ["succeeded"], limit: 5 });
const refusal = await v1.getJob("nobody").then(
  () => null,
  (answer) => [answer.error.error.code, answer.error.error.details.reason],
);
const states = listed.data.entries.map(({ state }) => state);
const { result } = job.data;
console.log(
  JSON.stringify({ outcome, states, claimed: claimed.data.jobs.length, result, refusal }),
);
`;
