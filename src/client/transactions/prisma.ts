/**
 * Prisma on PostgreSQL: the client that an interactive `$transaction` hands out.
 */
import { TransactionRefused } from "../../engine/errors.js";
import type { AsyncTransaction, StatementRow } from "../../engine/transaction.js";
import type { AsyncTransactionSource } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

type RawQuery = { $queryRawUnsafe(text: string, ...values: unknown[]): Promise<unknown> };

/** Whether a client is one of Prisma. */
export function isPrisma(client: Members): client is Members & RawQuery {
  return hasMethod(client, "$queryRawUnsafe");
}

/** The transaction of Prisma. */
export function prismaTransaction(
  client: Members & RawQuery,
): AsyncTransaction | TransactionRefused {
  // Inside a transaction nobody can connect.
  if (hasMethod(client, "$connect")) {
    const message =
      "This Prisma client has no transaction open: give the tx that prisma.$transaction(async (tx) => …) hands out.";
    return new TransactionRefused({ reason: "not_open", message });
  }
  return {
    kind: "async",
    client,
    execute: async (sql, values) => {
      const rows = await client.$queryRawUnsafe(sql, ...values).catch((fault: PrismaFault) => {
        throw withServerCode(fault);
      });
      return (rows as readonly object[]).map(withNumbers);
    },
  };
}

/** What Prisma knows of a fault: the server's code, or what its driver said, which has it. */
interface PrismaFault extends Error {
  readonly meta?: {
    readonly code?: unknown;
    readonly driverAdapterError?: { readonly cause?: { readonly originalCode?: unknown } };
  };
}

/** The fault with the server's code, if it has one, in place of Prisma's own, which look like the server's. */
function withServerCode(fault: PrismaFault): Error {
  const code = fault.meta?.code ?? fault.meta?.driverAdapterError?.cause?.originalCode;
  const error = new Error(fault.message, { cause: fault });
  return typeof code === "string" ? Object.assign(error, { code }) : error;
}

/** Prisma gives 64-bit integers as bigints; the store's own fit into numbers. */
function withNumbers(row: object): StatementRow {
  const values = Object.entries(row).map(([name, value]) => [
    name,
    typeof value === "bigint" ? Number(value) : value,
  ]);
  return Object.fromEntries(values) as StatementRow;
}

/** The client that an interactive transaction hands out: the last way in which `$transaction` is declared. */
type TransactionOf<Prisma extends { $transaction(work: never): unknown }> = Parameters<
  Prisma["$transaction"]
>[0] extends (tx: infer Transaction) => unknown
  ? Transaction
  : never;

/**
 * Handler transactions of Prisma.
 *
 * @example
 * const service = await connect(shop, { url, transactions: prismaTransactions(new PrismaClient()) });
 */
export function prismaTransactions<Prisma extends { $transaction(work: never): unknown }>(
  prisma: Prisma,
): AsyncTransactionSource<TransactionOf<Prisma>> {
  return {
    kind: "async",
    run: (work) => prisma.$transaction(work as never) as ReturnType<typeof work>,
  };
}
