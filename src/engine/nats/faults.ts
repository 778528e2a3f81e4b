/**
 * What can go wrong between the engine and a server, told as faults of the store with their remedies.
 */
import {
  isStoreError,
  StoreClosed,
  type StoreError,
  StoreFailed,
  StoreFull,
  StoreUnavailable,
} from "../errors.js";

/** An error that the JetStream API answered with. */
export interface ApiError {
  readonly code: number;
  readonly err_code?: number;
  readonly description?: string;
}

/** The server's own codes for what has a remedy of its own. */
const code = {
  notEnabled: 10076,
  notEnabledForAccount: 10039,
  accountLimitReached: 10002,
  insufficientResources: 10023,
  memoryExceeded: 10028,
  storageExceeded: 10047,
  streamStoreFailed: 10077,
  streamNotFound: 10059,
  maximumMessages: 10048,
  messageTooLarge: 10054,
  streamOffline: 10118,
  clusterNoPeers: 10005,
  clusterNotAvailable: 10008,
  maximumConsumers: 10026,
  noMessageFound: 10037,
  sequenceNotFound: 10043,
} as const;

const full: ReadonlySet<number> = new Set([
  code.accountLimitReached,
  code.insufficientResources,
  code.memoryExceeded,
  code.storageExceeded,
  code.streamStoreFailed,
  code.maximumMessages,
]);

const away: ReadonlySet<number> = new Set([
  code.streamOffline,
  code.clusterNoPeers,
  code.clusterNotAvailable,
]);

/** Faults that may be over in a moment: the server is away, is starting, or chooses a leader. */
const passing = new WeakSet<StoreError>();

function passingFault(url: string, message: string): StoreUnavailable {
  const fault = new StoreUnavailable({ url, message });
  passing.add(fault);
  return fault;
}

/** Whether a fault may be over in a moment, so that a question may be asked again. */
export function mayPass(fault: unknown): boolean {
  return isStoreError(fault) && passing.has(fault);
}

/**
 * Refusals of a message after which nothing of it can come: it was never sent, its user may not send it, it breaks a limit of
 * the stream, which every replica finds alike, or one of the account, which is looked at before anything is stored or proposed.
 * A disk that is full may be so at one replica only, while the others go on to store.
 */
const certain = new WeakSet<object>();

function certainly<Fault extends StoreError>(fault: Fault): Fault {
  certain.add(fault);
  return fault;
}

/** Whether what was refused with a fault can never come. */
export function isRefusedForSure(error: unknown): boolean {
  return typeof error === "object" && error !== null && certain.has(error);
}

/** The same message was sent before, without an answer: that one may still come, whatever became of this one. */
export function doubt(error: unknown): void {
  if (typeof error === "object" && error !== null) certain.delete(error);
}

/** Whether a message was refused for its size. */
export function isTooLarge(error: unknown): boolean {
  return StoreFailed.is(error) && (error.code === sizeCode || error.code === serverSizeCode);
}

/** Whether a message could not be removed because it is not there. The first and the last of a stream have a general code then. */
export function isGone(error: unknown): boolean {
  if (!StoreFailed.is(error)) return false;
  return goneCodes.has(error.code) || error.message.includes("no message found");
}

const goneCodes: ReadonlySet<string | undefined> = new Set([
  String(code.noMessageFound),
  String(code.sequenceNotFound),
]);

const sizeCode = "max_payload";
const serverSizeCode = String(code.messageTooLarge);

/** The fault that an answer of the API tells of. */
export function apiFault(error: ApiError, url: string): StoreError {
  const fault = faultOf(error, url);
  const isLimit =
    error.err_code === code.accountLimitReached ||
    /maximum (messages|bytes)/i.test(error.description ?? "");
  return isLimit || isTooLarge(fault) ? certainly(fault) : fault;
}

function faultOf(error: ApiError, url: string): StoreError {
  const said = error.description ?? `error ${error.code}`;
  const number = error.err_code ?? 0;
  if (full.has(number) || /maximum (messages|bytes)|no space left/i.test(said)) {
    const message = `The NATS server has no room for more (${said}). Free space, or raise the limits of the stream or the account. Nothing of this call was stored.`;
    return new StoreFull({ url, message });
  }
  if (number === code.notEnabled || number === code.notEnabledForAccount) {
    const message = `JetStream is not enabled for this account (${said}). Start the server with -js, or enable it for the account.`;
    return new StoreUnavailable({ url, message });
  }
  if (number === code.streamNotFound) {
    const message = `A stream of this deployment is gone (${said}). Connect again to make it anew; what it held is lost unless a backup is restored first.`;
    return new StoreUnavailable({ url, message });
  }
  if (away.has(number) || error.code === 503) {
    return passingFault(
      url,
      `JetStream cannot answer now (${said}). It may be choosing a leader; try again in a moment.`,
    );
  }
  return new StoreFailed({ url, message: `NATS refused: ${said}.`, code: String(number) });
}

/**
 * The fault of a consumer that can neither be made nor taken as it is, with what is wrong with one that is there. What may be
 * over in a moment stays as it is.
 */
export function consumerFault(
  fault: StoreError,
  stream: string,
  consumer: string,
  flaw: string | null,
): StoreError {
  if (mayPass(fault)) return fault;
  const { url } = fault;
  const what = `The consumer ${consumer} of the stream ${stream} cannot be used, and without it no job of its lane is claimed.`;
  const message = `${what} ${flaw === null ? "" : `${flaw} `}${fault.message}`;
  if (StoreUnavailable.is(fault)) return new StoreUnavailable({ url, message });
  if (StoreFull.is(fault)) return new StoreFull({ url, message });
  if (!StoreFailed.is(fault)) return fault;
  const isTooMany = fault.code === String(code.maximumConsumers);
  const remedy = isTooMany
    ? "Raise max_consumers of the account or the stream, or remove consumers that nobody uses: a worker needs three for each version of a type."
    : "If it was made for something else, remove it, and it is made anew.";
  return new StoreFailed({
    url,
    message: `${message} ${remedy}`,
    ...(fault.code !== undefined && { code: fault.code }),
  });
}

/** What the platform says of an address that leads nowhere. */
const unreachable: ReadonlySet<string> = new Set([
  "ENOTFOUND",
  "EAI_AGAIN",
  "ECONNREFUSED",
  "ECONNRESET",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ETIMEDOUT",
]);

function cannotBeReached(said: string, url: string): StoreUnavailable {
  const message = `The NATS server cannot be reached (${said}). Check that it runs and that the address is right.`;
  return new StoreUnavailable({ url, message });
}

/** A key is one record, and so the server's largest message bounds how many jobs may be under it. */
function tooLarge(said: string, url: string): StoreFailed {
  const message = `The NATS server takes no message as large as this (${said}). A payload or result is too large, or too many jobs are under one concurrency key, whose record has about 170 bytes for each (some 6,000 jobs at the usual max_payload of 1 MB). Make it smaller, lower maxQueuedPerKey or maxActive, or raise max_payload in the server's configuration. Nothing of this call was stored.`;
  return certainly(new StoreFailed({ url, message, code: sizeCode }));
}

/** The fault that something thrown by the client library tells of. */
export function thrownFault(error: unknown, url: string): StoreError {
  if (isStoreError(error)) return error;
  const name = error instanceof Error ? error.name : "";
  const said = error instanceof Error ? error.message : String(error);
  if (/max_payload/i.test(said)) return tooLarge(said, url);
  switch (name) {
    case "ClosedConnectionError":
    case "DrainingConnectionError":
      return new StoreClosed({
        url,
        message: `The store ${url} was closed; connect again to use it.`,
      });
    case "TimeoutError":
      return passingFault(
        url,
        "The NATS server did not answer in time. Check that it runs and is not overloaded. Whether it did what was asked is not known.",
      );
    case "PermissionViolationError":
    case "AuthorizationError":
      return certainly(
        new StoreUnavailable({
          url,
          message: `The NATS server does not permit this (${said}). Grant what the service needs, or use another user.`,
        }),
      );
    case "NoRespondersError":
    case "RequestError":
      return passingFault(
        url,
        "Nobody answers for JetStream. Check that it is enabled for the account and that its streams exist.",
      );
    case "ConnectionError":
      return cannotBeReached(said, url);
    default:
      if (unreachable.has((error as { code?: string }).code ?? ""))
        return cannotBeReached(said, url);
      return new StoreFailed({ url, message: `Talking to NATS failed: ${said}.` });
  }
}
