/**
 * The accepted contract of a service, kept as a record: what a starting process compares its own with, what
 * operators read, and how a change that may hurt waiting work is consented to.
 */
import { Result } from "better-result";
import {
  type AcceptedContract,
  accept,
  type ContractStanding,
  contractStanding,
  isBroken,
  readAccepted,
  type StoredContract,
} from "../contract/acceptance.js";
import type { ServiceContract } from "../contract/definition.js";
import { contractDiff } from "../contract/diff.js";
import { InvalidDefinition } from "../contract/errors.js";
import { type Manifest, manifest, manifestVersion } from "../contract/manifest.js";
import type { Json } from "../core/json.js";
import { StoreBusy, StoreCorrupt, type StoreError, StoreTooNew } from "../engine/errors.js";
import { recordId, type StoredRecord } from "../engine/record.js";
import { type AsyncResult, attempt } from "./async-result.js";
import { leaveAuditEvent } from "./audit.js";
import { MigrationNotAccepted } from "./errors.js";
import type { Runtime } from "./runtime.js";

/** How often the record is written when others write it at the same time. */
const writesMax = 20;

/** How large a manifest may be as JSON: a record must fit into one message of every store. */
const manifestBytesMax = 512 * 1024;

/** How many changes a message lists. */
const listedMax = 20;

/** The accepted contract, and how this process's own stands to it. */
export class ContractState {
  readonly #runtime: Runtime;
  readonly #contract: ServiceContract | Manifest;
  #manifest: Manifest | undefined;

  /** `contract` is the process's own, or the manifest of one that somebody else brings. */
  constructor(runtime: Runtime, contract: ServiceContract | Manifest) {
    this.#runtime = runtime;
    this.#contract = contract;
  }

  /** The contract that was accepted last; `null` when no process of the service has started yet. */
  accepted(): AsyncResult<AcceptedContract | null, StoreError> {
    return attempt<AcceptedContract | null, StoreError>(async () => {
      const { stored } = await this.#read();
      if (stored === "unreadable") return this.#tooNew();
      if (stored === null || !isBroken(stored)) return Result.ok(stored);
      const { engine, service } = this.#runtime;
      const message = `The accepted contract of ${service} is broken; accept another: ${stored.problem}`;
      return Result.err(new StoreCorrupt({ url: engine.url, message }));
    });
  }

  /** How this process's own contract stands to the accepted one, with the changes between them. */
  standing(): AsyncResult<ContractStanding, StoreError> {
    return attempt<ContractStanding, StoreError>(async () => {
      const { stored } = await this.#read();
      return Result.ok(contractStanding(stored, this.#own()));
    });
  }

  /**
   * Makes this process's own contract the accepted one, whatever stands between them. It is the way back to an
   * earlier contract, too, and from one that is broken.
   */
  accept(): AsyncResult<AcceptedContract, StoreError> {
    return attempt<AcceptedContract, StoreError>(async () => {
      const accepted = await this.#write(() => true);
      return accepted === null ? this.#tooNew() : Result.ok(accepted);
    });
  }

  /** As `accept`, but a migration only under its name; gives how the contract stands where that was not given. */
  acceptNamed(
    migration: string | undefined,
  ): AsyncResult<
    { readonly accepted: AcceptedContract } | { readonly refused: ContractStanding },
    StoreError
  > {
    type Answer = { readonly accepted: AcceptedContract } | { readonly refused: ContractStanding };
    return attempt<Answer, StoreError>(async () => {
      let refused: ContractStanding | undefined;
      const accepted = await this.#write((standing) => {
        const isNamed = standing.standing !== "migration" || standing.migration === migration;
        refused = isNamed ? undefined : standing;
        return isNamed;
      });
      if (refused !== undefined) return Result.ok({ refused });
      return accepted === null ? this.#tooNew() : Result.ok({ accepted });
    });
  }

  /**
   * Takes up this process's contract when it starts: the first one and updates are stored, an earlier one is left
   * as it is, and a migration is stored only under the name that the caller gives. Otherwise it throws
   * `MigrationNotAccepted`. Safe when many processes start at once. `service.start` does it.
   * Gives whether this process's own contract is the accepted one now.
   */
  async takeUp(acceptMigration: string | undefined): Promise<boolean> {
    const now = await this.#write((standing, accepted) => {
      switch (standing.standing) {
        case "first":
        case "update":
          return true;
        case "accepted":
          return false;
        case "unreadable":
          this.#warn("The accepted contract was written by a newer version of Millrace.");
          return false;
        case "earlier":
          this.#warnOfEarlier(accepted);
          return false;
        case "migration":
          if (standing.migration === acceptMigration) return true;
          throw notAccepted(this.#runtime.service, standing);
      }
    });
    return now?.manifest.signature === this.#own().signature;
  }

  /** Writes the own contract if `mayWrite` says so of how it stands; gives what is accepted then, if it can be read. */
  async #write(
    mayWrite: (standing: ContractStanding, accepted: AcceptedContract | null) => boolean,
  ): Promise<AcceptedContract | null> {
    const { engine, service } = this.#runtime;
    const own = this.#own();
    let { record, stored } = await this.#read();
    for (let writes = 0; writes < writesMax; writes++) {
      const isUnreadable = stored === "unreadable";
      const before = stored === null || stored === "unreadable" || isBroken(stored) ? null : stored;
      const standing = contractStanding(stored, own);
      if (!mayWrite(standing, before) || isUnreadable) return before;
      const next = accept(before, own, {
        acceptedAt: engine.now(),
        acceptedBy: this.#acceptedBy(),
      });
      const body = next as unknown as Json;
      const id = recordId.contract(service);
      const [outcome] = await engine.swap([{ id, expect: record?.version ?? 0, body }]);
      if (outcome === undefined) throw new Error("The store gave no answer to a swap.");
      if (outcome.swapped) {
        const details = { standing: standing.standing, signature: own.signature };
        const change = { action: "contract.accept", target: service, details } as const;
        await leaveAuditEvent(this.#runtime, change);
        return next;
      }
      record = outcome.current;
      stored = storedIn(record);
    }
    const message = `The contract of ${service} kept changing; try again.`;
    throw new StoreBusy({ url: engine.url, message });
  }

  async #read(): Promise<{
    record: StoredRecord | null;
    stored: StoredContract | null;
  }> {
    const { engine, service } = this.#runtime;
    const [record = null] = await engine.records([recordId.contract(service)]);
    return { record, stored: storedIn(record) };
  }

  #own(): Manifest {
    if (this.#manifest !== undefined) return this.#manifest;
    const own = "manifest" in this.#contract ? this.#contract : manifest(this.#contract);
    const bytes = Buffer.byteLength(JSON.stringify(own));
    if (bytes > manifestBytesMax) {
      const message = `The contract is ${bytes} bytes as JSON; at most ${manifestBytesMax} are allowed: divide the service, or its schemas.`;
      throw new InvalidDefinition({ field: "jobs", message });
    }
    this.#manifest = own;
    return own;
  }

  /** In a rolling deployment processes of the earlier contract still start; only what may hurt is said. */
  #warnOfEarlier(accepted: AcceptedContract | null): void {
    if (accepted === null) return;
    const own = this.#own();
    const isHarmless =
      contractDiff(accepted.manifest, own).migration === null &&
      contractDiff(own, accepted.manifest).migration === null;
    if (!isHarmless) this.#warn("This process runs an earlier contract than the accepted one.");
  }

  #acceptedBy(): string {
    const { actor, instance } = this.#runtime;
    return actor ?? instance;
  }

  #warn(message: string): void {
    this.#runtime.logger.warn({ service: this.#runtime.service }, message);
  }

  async #tooNew(): Promise<Result<never, StoreTooNew>> {
    const { engine, service } = this.#runtime;
    const { record } = await this.#read();
    const { manifest } = (record?.body ?? {}) as { manifest?: { manifest?: number } };
    const message = `The accepted contract of ${service} was written by a newer version of Millrace; use that one.`;
    const found = manifest?.manifest ?? 0;
    return Result.err(new StoreTooNew({ url: engine.url, found, known: manifestVersion, message }));
  }
}

/**
 * Whether payloads and results of a service may be stored encrypted only, because the accepted contract says so, though the
 * process's own does not. Whoever names the migration back to plain text has consented to it.
 */
export async function demandsEncryption(
  { engine }: Pick<Runtime, "engine">,
  contract: ServiceContract,
  acceptMigration: string | undefined,
): Promise<boolean> {
  const [record = null] = await engine.records([recordId.contract(contract.name)]);
  const stored = storedIn(record);
  if (stored === null || stored === "unreadable") return false;
  const { encrypted = false } = isBroken(stored) ? stored : stored.manifest;
  if (!encrypted) return false;
  const standing = contractStanding(stored, manifest(contract));
  return standing.standing !== "migration" || standing.migration !== acceptMigration;
}

function storedIn(record: StoredRecord | null): StoredContract | null {
  return record === null ? null : readAccepted(record.body);
}

function notAccepted(
  service: string,
  { diff, migration }: Extract<ContractStanding, { standing: "migration" }>,
): MigrationNotAccepted {
  const migrations = diff.changes.filter(({ kind }) => kind === "migration");
  const lines = migrations.slice(0, listedMax).map(({ sentence }) => `- ${sentence}`);
  if (migrations.length > listedMax) lines.push(`- and ${migrations.length - listedMax} more.`);
  const message = [
    `The contract of ${service} changed in ways that may hurt jobs which are waiting or expected:`,
    ...lines,
    `If that is intended, accept it: connect(contract, { acceptMigration: "${migration}" }).`,
  ].join("\n");
  return new MigrationNotAccepted({ service, migration, changes: diff.changes, message });
}
