import type { RowName } from "./rows.ts";

/**
 * Failures of other proxies whose bytes are not published: each endangers users, and no advisory, issue or change log
 * of its project mentions it yet. The page says that the row is withheld. An entry is removed when the project has
 * published the fault.
 */
export const withheld: readonly { readonly proxy: string; readonly row: RowName }[] = [];
