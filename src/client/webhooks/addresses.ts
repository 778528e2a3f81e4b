/**
 * Which addresses webhooks may be sent to. Names are resolved when a connection is made and the address that comes out is
 * checked then, so that a name which changes its mind leads nowhere.
 */
import { type LookupAddress, type LookupOptions, lookup as systemLookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";

/** Special networks: this machine, private and link-local ones (where clouds keep their metadata), and those without hosts. */
const specialNetworks = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  // Among them the unspecified and the loopback address, and IPv4 in IPv6 clothes.
  "::/96",
  "::ffff:0:0/96",
  "::ffff:0:0:0/96",
  "64:ff9b::/96",
  "64:ff9b:1::/48",
  "100::/64",
  "2001::/23",
  "2001:db8::/32",
  "2002::/16",
  "fc00::/7",
  "fe80::/10",
  "fec0::/10",
  "ff00::/8",
] as const;

/** How many networks may be allowed. */
const allowedMax = 100;

/** An address that webhooks may not be sent to. */
export class AddressRefused extends Error {
  constructor(address: string) {
    const network = `${address}/${isIP(address) === 6 ? 128 : 32}`;
    // The same refusal reaches callers of a server and those who connect by themselves.
    super(
      `${address} is not a public address; allow its network: with --webhook-addresses ${network} of millrace server and millrace dev, or with webhooks: { allowAddresses: ["${network}"] } of connect and startServer.`,
    );
    this.name = "AddressRefused";
  }
}

/** Resolves a name, as `dns.lookup` does. */
export type Lookup = (
  host: string,
  options: LookupOptions & { readonly all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/** What is wrong with a list of networks, as a sentence, or `null` when nothing is. */
export function networksProblem(networks: unknown): string | null {
  if (!Array.isArray(networks) || networks.length > allowedMax)
    return `It must be a list of at most ${allowedMax} networks, such as ["10.0.0.0/8"].`;
  const bad: unknown = networks.find((network) => parseNetwork(network) === null);
  return bad === undefined
    ? null
    : `"${String(bad)}" is not a network; write it such as "10.1.0.0/16" or "fd00::/8".`;
}

/** Networks by the version of their addresses, because one list of both takes every IPv4 address for an IPv6 one, too. */
type Networks = { readonly [Version in 4 | 6]: BlockList };

const special = networksOf(specialNetworks);

/** Says which addresses may be reached. */
export class AddressRules {
  readonly #allowed: Networks;
  readonly #lookup: Lookup;

  constructor(allowAddresses: readonly string[] = [], lookup: Lookup = systemLookup) {
    this.#allowed = networksOf(allowAddresses);
    this.#lookup = lookup;
  }

  /** Whether an address may be reached. */
  allows(address: string): boolean {
    return isIn(this.#allowed, address) || !isIn(special, address);
  }

  /** The error of a host that is an address which may not be reached; `null` for all others, and for names. */
  hostProblem(host: string): AddressRefused | null {
    const address = host.replace(/^\[(.*)\]$/, "$1");
    return isIP(address) === 0 || this.allows(address) ? null : new AddressRefused(address);
  }

  /** Resolves names for a connection, to nothing if one of their addresses may not be reached. */
  readonly lookup: LookupFunction = (host, options, callback) => {
    this.#lookup(host, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, "", 0);
      const refused = addresses.find(({ address }) => !this.allows(address));
      if (refused !== undefined) return callback(new AddressRefused(refused.address), "", 0);
      const [first] = addresses;
      if (first === undefined) return callback(new Error(`${host} has no address.`), "", 0);
      if (options.all) return callback(null, addresses);
      return callback(null, first.address, first.family);
    });
  };
}

function isIn(networks: Networks, address: string): boolean {
  return isIP(address) === 6
    ? networks[6].check(address, "ipv6")
    : networks[4].check(address, "ipv4");
}

function networksOf(networks: readonly string[]): Networks {
  const lists = { 4: new BlockList(), 6: new BlockList() };
  for (const network of networks) {
    const parsed = parseNetwork(network);
    if (parsed === null) throw new Error(`${network} is not a network.`);
    const { address, bits, version } = parsed;
    lists[version].addSubnet(address, bits, version === 6 ? "ipv6" : "ipv4");
  }
  return lists;
}

function parseNetwork(
  network: unknown,
): { readonly address: string; readonly bits: number; readonly version: 4 | 6 } | null {
  const [, address = "", digits = ""] = /^([^/]+)\/(\d{1,3})$/.exec(String(network)) ?? [];
  const version = isIP(address) as 0 | 4 | 6;
  const bits = Number(digits);
  if (version === 0 || digits === "" || bits > (version === 6 ? 128 : 32)) return null;
  return { address, bits, version };
}
