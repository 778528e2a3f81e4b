// Jobs by the name of their type: of types that no contract names, and of the contract's own.
import { describe, expect, it } from "vitest";
import { openService, stores } from "../support/stores.js";
import { shop } from "./shop.js";

describe.for(stores)("untyped jobs on $name", (store) => {
  it("are made of any JSON for types that no contract names", async () => {
    const { untyped, reads } = await openService(store, shop);
    const ref = await untyped
      .create("email:new", [1, "two", null], { version: 3, tags: ["raw"] })
      .orThrow();
    expect(await ref.get().orThrow()).toMatchObject({
      type: "email:new",
      typeVersion: 3,
      queue: "email-new",
      payload: [1, "two", null],
      maxTries: 5,
    });
    const named = await untyped.create("email:new", {}, { queue: "mail" }).orThrow();
    expect((await named.get().orThrow()).queue).toBe("mail");
    const many = await untyped
      .createMany("email:new", [{ payload: 1 }, { payload: 2, priority: 5 }])
      .orThrow();
    expect(many.every((result) => result.isOk())).toBe(true);
    expect((await untyped.submit("email:new", {}).orThrow()).outcome).toBe("accepted");
    expect((await reads.jobs({ type: "email:new" }).orThrow()).count).toBe(5);
  });

  it("obey the contract where it names the type", async () => {
    const { untyped } = await openService(store, shop);
    const ref = await untyped.create("greet", { name: "Ada" }).orThrow();
    expect((await ref.get().orThrow()).payload).toEqual({ name: "Ada", loud: false });
    const refused = [
      await untyped.create("greet", { name: 5 }),
      await untyped.create("greet", { name: "Ada" }, { version: 2 }),
      await untyped.create("greet", { name: "Ada" }, { queue: "mail" }),
    ];
    expect(refused.map((result) => result.isErr() && result.error)).toMatchObject([
      { _tag: "InvalidPayload" },
      { _tag: "InvalidOption", field: "version" },
      { _tag: "InvalidOption", field: "queue" },
    ]);
  });

  it("are refused for names that are not one safe token", async () => {
    const { untyped } = await openService(store, shop);
    const refused = [
      await untyped.create("a b", {}),
      await untyped.create("fine", {}, { queue: "a b" }),
      await untyped.create("fine", {}, { version: 0 }),
      await untyped.create("fine", {}, null as never),
      await untyped.createMany("fine", [], null as never),
      await untyped.create("constructor", Number.NaN),
    ];
    expect(refused.map((result) => result.isErr() && result.error)).toMatchObject([
      { _tag: "InvalidOption", field: "type" },
      { _tag: "InvalidOption", field: "queue" },
      { _tag: "InvalidOption", field: "version" },
      { _tag: "InvalidOption", field: "options" },
      { _tag: "InvalidOption", field: "options" },
      { _tag: "InvalidPayload" },
    ]);
  });

  it("run like typed ones", async () => {
    const service = await openService(store, shop);
    service.jobs.greet.handle(({ payload }) => ({ text: payload.name }));
    await service.start();
    expect(
      await service.untyped.run("greet", { name: "Ada" }, { timeoutMs: 20_000 }).orThrow(),
    ).toEqual({ text: "Ada" });
  });
});
