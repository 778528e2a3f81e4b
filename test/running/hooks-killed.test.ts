// A process that is killed between the end of a job and its hook: the next one calls it.
import { connect } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { startChild } from "../crash/children.js";
import { everyStore } from "../support/every-store.js";
import { hookedShop, keeper } from "./hooked-shop.js";

describe.for(everyStore.filter(({ name }) => name !== "memory"))("on $name", (store) => {
  it("an end whose hook was not called is not forgotten", async () => {
    const url = await store.freshUrl();
    const killed = await startChild("../running/hook-child.ts", [url]).ended;
    expect(killed).toMatchObject({ signal: "SIGKILL", lines: ["hooked"] });
    const called = new Promise<string>((resolve) => {
      const contract = hookedShop(({ id, state }) => resolve(`${id} ${state}`));
      void connect(contract, { url, keeper }).then(async (service) => {
        onTestFinished(() => service.stop());
        await service.start();
      });
    });
    expect(await called).toBe("hooked completed");
  });
});
