/** Writes and reads HAR files. */
import { ftruncateSync, lstatSync, openSync, readFileSync, unlinkSync, writeSync } from "node:fs";
import { isRecord, quoteInput } from "#fetchway/options";
import type { ServerSettings } from "../flags/commandoptions.ts";
import { VERSION } from "../flags/ownpackage.ts";
import { UsageError } from "../flags/read.ts";
import { explainRefused } from "../serve/permission.ts";
import type { HarEntry } from "./harentry.ts";

const CREATOR = JSON.stringify({ name: "fetchway", version: VERSION });
const BEGIN = `{"log":{"version":"1.2","creator":${CREATOR},"pages":[],"entries":[\n`;
const END = "\n]}}\n";

type RecordLimits = Pick<ServerSettings, "recordMaxEntries" | "recordMaxBytes">;

/**
 * A HAR file to which entries are added, one on each line. Each write includes the closing brackets of the file, and the next
 * write overwrites them. So the file is valid even if the process is killed.
 *
 * The writes are synchronous, because they only fill the page cache, which takes less time than making the entry.
 */
export class HarFile {
  readonly #path: string;
  readonly #limits: RecordLimits;
  readonly #report: (text: string) => void;
  /** The file descriptor; undefined until the file is created. */
  #file: number | undefined;
  /** The position of the next entry in the file. */
  #end: number = Buffer.byteLength(BEGIN);
  #entries = 0;
  #isOver = false;

  /** @param report called once, when no more entries can be added, with a message that says why */
  constructor(path: string, limits: RecordLimits, report: (text: string) => void) {
    this.#path = path;
    this.#limits = limits;
    this.#report = (text) => report(`--record ${quoteInput(path)}: ${text}`);
  }

  /**
   * Creates the file, which replaces a file of the same name. Only its owner may read it. The constructor does not create it,
   * because the command may still fail to listen: another command that has the port may be writing the same file.
   * @throws UsageError if the file cannot be created
   */
  open(): number {
    if (this.#file !== undefined) return this.#file;
    return (this.#file = createFile(this.#path));
  }

  /** Adds an entry. Returns whether another one can be added. */
  add(entry: string): boolean {
    if (this.#isOver) return false;
    const { recordMaxEntries: maxEntries, recordMaxBytes: maxBytes } = this.#limits;
    const bytes = Buffer.from((this.#entries > 0 ? ",\n" : "") + entry + END);
    if (this.#end + bytes.byteLength > maxBytes) return this.#stop(`${maxBytes} bytes`, "bytes");
    try {
      writeAll(this.open(), bytes, this.#end);
    } catch (error) {
      this.#isOver = true;
      this.#report(`it cannot be written (${codeOf(error)}); further requests are not recorded`);
      this.#restoreEnd();
      return false;
    }
    this.#end += bytes.byteLength - END.length;
    this.#entries++;
    return this.#entries < maxEntries || this.#stop(`${maxEntries} requests`, "entries");
  }

  #stop(full: string, limit: "bytes" | "entries"): false {
    this.#isOver = true;
    this.#report(`it has ${full} (--record-max-${limit}); further requests are not recorded`);
    return false;
  }

  /** Removes an entry of which only a part could be written, for example because the disk is full. */
  #restoreEnd(): void {
    if (this.#file === undefined) return;
    try {
      ftruncateSync(this.#file, this.#end);
      writeAll(this.#file, Buffer.from(END), this.#end);
    } catch {
      // `readHar` also reads a file without its closing brackets.
    }
  }
}

function createFile(path: string): number {
  try {
    // Make a new file, so that the permissions of the old file do not remain. Do not follow a link, because another user may
    // have made it.
    if (lstatSync(path, { throwIfNoEntry: false })?.isFile() === true) unlinkSync(path);
    const file = openSync(path, "wx", 0o600);
    writeAll(file, Buffer.from(BEGIN + END), 0);
    return file;
  } catch (error) {
    const reason = explainRefused(error) ?? `it cannot be created: ${codeOf(error)}`;
    throw new UsageError(`--record ${quoteInput(path)}: ${reason}`);
  }
}

function writeAll(file: number, bytes: Uint8Array, position: number): void {
  for (let at = 0; at < bytes.byteLength;) {
    at += writeSync(file, bytes, at, bytes.byteLength - at, position + at);
  }
}

function codeOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? message;
}

/**
 * Reads a HAR file. If the file breaks off, the complete entries are read.
 * @returns the entries in the order in which their requests began, and whether the file breaks off
 * @throws UsageError if it is not a HAR file
 */
export function readHar(path: string): { entries: HarEntry[]; isCut: boolean } {
  let text: string;
  try {
    text = readFileSync(path, "utf8").replace(/^\uFEFF/, "");
  } catch (error) {
    throw new UsageError(`${quoteInput(path)} cannot be read: ${codeOf(error)}`);
  }
  const whole = parseJson(text);
  const isCut = whole === undefined && text.startsWith('{"log":{"version":"1.2","creator":');
  const found = isCut
    ? text
        .split("\n")
        .slice(1)
        .map((line) => parseJson(line.replace(/,$/, "")))
    : (whole as { log?: { entries?: unknown } } | undefined)?.log?.entries;
  if (!Array.isArray(found)) throw new UsageError(`${quoteInput(path)} is not a HAR file`);
  const entries = found.filter(isEntry);
  if (!isCut && entries.length < found.length) {
    throw new UsageError(`${quoteInput(path)}: an entry has no request, or no response`);
  }
  return { entries: entries.toSorted((one, other) => timeOf(one) - timeOf(other)), isCut };
}

function timeOf({ startedDateTime }: HarEntry): number {
  return Date.parse(startedDateTime) || 0;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a value has all members of an entry that other code reads without a check. */
function isEntry(value: unknown): value is HarEntry {
  if (!isRecord(value) || !isRecord(value["request"]) || !isRecord(value["response"])) return false;
  const { request, response } = value as unknown as HarEntry;
  return (
    typeof request.method === "string" &&
    typeof request.url === "string" &&
    arePairs(request.headers) &&
    arePairs(response.headers) &&
    isRecord(response.content) &&
    typeof response.status === "number"
  );
}

function arePairs(list: unknown): boolean {
  return (
    Array.isArray(list) &&
    list.every(
      (each) =>
        isRecord(each) && typeof each["name"] === "string" && typeof each["value"] === "string",
    )
  );
}
