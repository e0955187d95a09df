import { readFileSync } from "node:fs";
import { type Flag, flags } from "./flags.ts";

/** Renders what `--help` shows. */
export function renderHelp(): string {
  const width = Math.max(...flags.map((flag) => renderUsage(flag).length));
  const headings = [...new Set(flags.map(({ heading }) => heading))];
  const sections = headings.map((heading) => {
    const lines = flags
      .filter((flag) => flag.heading === heading)
      .map((flag) => `  ${renderUsage(flag).padEnd(width)}  ${flag.help}${renderDefault(flag)}`);
    return `${heading}\n${lines.join("\n")}`;
  });
  return `Forwards every HTTP request to a target.

  fetchway <target> [options]   the target is http://…, https://… or unix:/path/to/socket
  fetchway --demo               the target is a small upstream to try things on

${sections.join("\n\n")}`;
}

function renderUsage({ name, short, value, negatable }: Flag): string {
  const long = `--${negatable ? "[no-]" : ""}${name}`;
  return `${short === undefined ? "    " : `-${short}, `}${long}${value === undefined ? "" : ` ${value}`}`;
}

function renderDefault({ fallback }: Flag): string {
  return fallback === undefined || fallback === false ? "" : ` (default ${String(fallback)})`;
}

/** Reads the version from the package's own package.json, whether this file runs from the sources or from dist. */
export function readVersion(): string {
  for (let up = "../"; ; up += "../") {
    const found = readPackage(new URL(`${up}package.json`, import.meta.url));
    if (found?.name === "fetchway" && found.version !== undefined) return found.version;
    if (up.length > 12) throw new Error("the package.json of fetchway is missing");
  }
}

function readPackage(url: URL): { name?: string; version?: string } | undefined {
  try {
    return JSON.parse(readFileSync(url, "utf8")) as { name?: string; version?: string };
  } catch {
    return undefined;
  }
}
