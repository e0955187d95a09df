/**
 * Failures of other proxies that are not published: each endangers users, and its project has not published it yet. The
 * list names them only by their hashes; the page of the proxy has their number. An entry is removed when the project has
 * published the fault.
 */
import { createHash } from "node:crypto";

const WITHHELD: ReadonlySet<string> = new Set([
  "0442ef21b3a80e4f",
  "080fc9319080128c",
  "2020115146d9b388",
  "40cc7ae3092e3a5e",
  "50a7c56918640337",
  "524b7f271b033504",
  "5dee787ac777902f",
  "6a637d50b17ffb64",
  "7194f95c0b35b36a",
  "a632bd892dce1a0b",
  "b45cd6ec842f8ca6",
  "b5628a15c5068976",
  "bb547e9ea82e6b28",
  "d99a116be8777ce7",
  "f865c4dd4386f3f4",
  "fc54ff4b973fed9f",
]);

export function hashOf(proxy: string, row: string): string {
  return createHash("sha256").update(`${proxy}\n${row}`).digest("hex").slice(0, 16);
}

export function isWithheld(proxy: string, row: string): boolean {
  return WITHHELD.has(hashOf(proxy, row));
}
