// The router: which route a path is for, what its parameters are, and what else the path may be asked with.
import { expect, test } from "vitest";
import { Router } from "#millrace/server/http/router.js";

const router = new Router<string>();
router.add("GET", "/jobs/{id}", "get");
router.add("GET", "/jobs/counts", "counts");
router.add("POST", "/jobs/batch", "batch");
router.add("POST", "/jobs/{id}/retry", "retry");
router.add("GET", "/queues/{service}/{queue}", "queue");

test.each([
  ["GET", "/jobs/1", { found: "get", params: { id: "1" } }],
  ["GET", "/jobs/counts", { found: "counts", params: {} }],
  ["GET", "/jobs/batch", { found: "get", params: { id: "batch" } }],
  ["POST", "/jobs/batch", { found: "batch", params: {} }],
  ["POST", "/jobs/batch/retry", { found: "retry", params: { id: "batch" } }],
  ["GET", "/queues/a/b", { found: "queue", params: { service: "a", queue: "b" } }],
])("%s %s meets its route", (method, path, match) => {
  expect(router.match(method, path)).toEqual(match);
});

test.each([
  ["/jobs/a%3Ab", "a:b"],
  ["/jobs/a%2Fb", "a/b"],
  ["/jobs/100%", "100%"],
  ["/jobs/__proto__", "__proto__"],
])("the parameter of %s is decoded where it can be", (path, id) => {
  expect(router.match("GET", path)).toEqual({ found: "get", params: { id } });
});

test.each(["/jobs", "/jobs/", "/jobs/1/", "//jobs/1", "/jobs//retry", "/Jobs/1", "jobs/1", ""])(
  "nothing is at %j",
  (path) => {
    expect(router.match("GET", path)).toBeUndefined();
    expect(router.methods(path)).toEqual([]);
  },
);

test("a path tells the methods that it can be asked with", () => {
  expect(router.match("PATCH", "/jobs/batch")).toBeUndefined();
  expect(router.methods("/jobs/batch")).toEqual(["GET", "POST"]);
  expect(router.methods("/jobs/1/retry")).toEqual(["POST"]);
});
