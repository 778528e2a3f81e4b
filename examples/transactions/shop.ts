// What the examples of this folder share: a shop that sends a receipt for every order. They need a PostgreSQL server:
// `npm run services` starts one and prints its URL; give it as MILLRACE_TEST_POSTGRES_URL.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

export const shop = defineService("shop", {
  sendReceipt: defineJob({ payload: z.object({ orderId: z.string() }) }),
});

export const url =
  process.env.MILLRACE_TEST_POSTGRES_URL ?? "postgres://postgres@127.0.0.1:5432/postgres";

export const tables = `
  CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY);
  CREATE TABLE IF NOT EXISTS receipts (order_id text);
  TRUNCATE orders, receipts`;
