/** A name server (RFC 1035) over UDP. Tests can change its records at any time. */
import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { once } from "node:events";

const A = 1;
const AAAA = 28;
const NXDOMAIN = 3;
const SERVFAIL = 2;

export interface Zone {
  /** The IPv4 addresses. A getter may return others each time, because they are read once for each answer. */
  addresses: string[];
  /** The bytes of the IPv6 addresses. */
  ipv6?: Uint8Array[];
  /** The time to live of the record in seconds. */
  ttl: number;
}

export class NameServer implements AsyncDisposable {
  /** The records by name. The server answers NXDOMAIN for any other name. */
  zones: Record<string, Zone> = {};
  /** Which questions the server answers with a server failure: all (`true`), or those for addresses of this family. */
  broken: boolean | 4 | 6 = false;
  /** Whether the server does not answer at all. */
  silent = false;
  /** The names whose IPv4 addresses were queried, in order. */
  asked: string[] = [];
  readonly #socket: Socket = createSocket("udp4");

  async listen(): Promise<this> {
    this.#socket.on("message", (question, from) => this.#answer(question, from));
    this.#socket.bind(0, "127.0.0.1");
    await once(this.#socket, "listening");
    return this;
  }

  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`;
  }

  #answer(query: Buffer, from: RemoteInfo): void {
    // A query has one question: labels, each after its length; an empty label; the type and the class.
    const labels: string[] = [];
    let at = 12;
    for (let size = query[at] ?? 0; size > 0; size = query[at] ?? 0) {
      labels.push(query.toString("latin1", at + 1, at + 1 + size));
      at += 1 + size;
    }
    const type = query.readUInt16BE(at + 1);
    const question = query.subarray(12, at + 5);
    // c-ares may mix the case of a name, which makes answers harder to forge.
    const name = labels.join(".").toLowerCase();
    if (type === A) this.asked.push(name);
    if (this.silent) return;
    const zone = this.zones[name];
    const isBroken = this.broken === true || this.broken === (type === A ? 4 : 6);
    const records = isBroken ? [] : addressesOf(zone, type);
    const head = Buffer.alloc(12);
    query.copy(head, 0, 0, 2);
    const code = isBroken ? SERVFAIL : zone === undefined ? NXDOMAIN : 0;
    head.writeUInt16BE(0x8180 | code, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(records.length, 6);
    const answers = records.map((address) => {
      const record = Buffer.alloc(12 + address.length);
      // A pointer to the name in the question.
      record.writeUInt16BE(0xc00c, 0);
      record.writeUInt16BE(type, 2);
      record.writeUInt16BE(1, 4);
      record.writeUInt32BE(zone?.ttl ?? 0, 6);
      record.writeUInt16BE(address.length, 10);
      record.set(address, 12);
      return record;
    });
    this.#socket.send(Buffer.concat([head, question, ...answers]), from.port, from.address);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    await once(this.#socket, "close");
  }
}

/** Returns the bytes of the addresses that a question of this type asks for. */
function addressesOf(zone: Zone | undefined, type: number): Uint8Array[] {
  if (type === AAAA) return zone?.ipv6 ?? [];
  if (type !== A) return [];
  return (zone?.addresses ?? []).map((address) => Buffer.from(address.split(".").map(Number)));
}
