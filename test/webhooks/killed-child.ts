// A process that delivers webhooks until it is killed: `killed-child.ts STORE`.
import { openShop } from "./killed-shop.js";

const [, , url = ""] = process.argv;
const service = await openShop(url);
await service.start();
console.log("started");
await service.wait();
