/**
 * Finds imports that break the order of the layers: circles, and imports of a higher layer. Imports of types count.
 *
 *     npm run layers    # prints the layers with their files, circles, and imports of a higher layer
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const root = join(import.meta.dirname, "../..");

/**
 * The layers of `src/`, the lowest first: folders, and files that are in no folder. Each file imports only files of its own
 * layer and of lower layers.
 */
export const LAYERS: readonly (readonly string[])[] = [
  ["fields", "misuse.ts", "recentmap.ts"],
  ["error.ts", "schema"],
  ["body"],
  ["target"],
  ["transport"],
  ["options"],
  ["fetch", "http1", "request", "response", "websocket"],
  ["exchange"],
  ["upstreams"],
  ["plan.ts"],
  ["pipeline"],
  ["proxy.ts"],
  ["explain"],
  ["bodies.ts", "index.ts", "options.ts", "requests.ts", "streams.ts", "transport.ts"],
];

/**
 * For each place in `runtimes/` (a folder, or a file in no folder), the other places from which its files may import. A
 * file may also import from its own place, and an entry from the folder with its name.
 */
const SHARED: Readonly<Record<string, readonly string[]>> = {
  sockets: [],
  node: ["sockets"],
  bun: ["sockets"],
  deno: ["sockets"],
  // `fetchway/undici` is the entry for Node with another client.
  undici: ["node", "sockets"],
};

/** For each file, the files that it imports. All are paths from the root of the project. */
export type Imports = ReadonlyMap<string, readonly string[]>;

/** Reads the imports of all source files, dynamic ones included. */
export function readImports(): Imports {
  const files = globSync("{src,runtimes,integrations,command}/**/*.ts", { cwd: root });
  return new Map(files.toSorted().map((file) => [file, importsOf(file)]));
}

function importsOf(file: string): string[] {
  const source = readFileSync(join(root, file), "utf8");
  const paths = source.matchAll(
    /(?:^(?:import|export|\}) [^"]*?|^import |\bimport\()"(\.[^"]+\.ts)"/gm,
  );
  return Array.from(paths, ([, path = ""]) => relative(root, join(root, dirname(file), path)));
}

/** Returns the groups of files that import each other in a circle (Tarjan's strongly connected components). */
export function findCircles(imports: Imports): string[][] {
  const circles: string[][] = [];
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const visit = (file: string): void => {
    order.set(file, order.size);
    lowest.set(file, order.get(file) as number);
    stack.push(file);
    for (const next of imports.get(file) ?? []) {
      if (!order.has(next)) visit(next);
      else if (!stack.includes(next)) continue;
      lowest.set(file, Math.min(lowest.get(file) as number, lowest.get(next) as number));
    }
    if (lowest.get(file) !== order.get(file)) return;
    const group = stack.splice(stack.indexOf(file));
    if (group.length > 1 || imports.get(file)?.includes(file)) circles.push(group);
  };
  for (const file of imports.keys()) if (!order.has(file)) visit(file);
  return circles;
}

/** Returns the place of a file: the folder below `src` or `runtimes`, or the file itself if it is in no folder. */
function placeOf(file: string): string {
  return file.split("/")[1] as string;
}

/** Returns the imports of a higher layer, each as `file -> file`. */
export function findUpward(imports: Imports): string[] {
  const edges = [...imports].flatMap(([from, files]) => files.map((to) => [from, to] as const));
  return edges.filter(([from, to]) => !mayImport(from, to)).map(([from, to]) => `${from} -> ${to}`);
}

function mayImport(from: string, to: string): boolean {
  const [top, target] = [from, to].map((file) => file.split("/")[0]);
  const [place, other] = [placeOf(from), placeOf(to)];
  if (top === "src") {
    return target === "src" && (place === other || rankOf(other) < rankOf(place));
  }
  // The files of `integrations/` and `command/` import Fetchway by its name, like apps.
  if (top !== "runtimes") return target === top;
  if (target !== "runtimes") return target === "src";
  const own = place.replace(/\.ts$/, "");
  // A file directly in `runtimes/` is an entry, or several entries share it.
  if (place.endsWith(".ts"))
    return other.endsWith(".ts") || [own, ...(SHARED[own] ?? [])].includes(other);
  return place === other || (SHARED[place] ?? []).includes(other);
}

function rankOf(place: string): number {
  const rank = LAYERS.findIndex((layer) => layer.includes(place));
  if (rank < 0) throw new Error(`src/${place} is in no layer: add it to LAYERS`);
  return rank;
}

if (import.meta.main) {
  const imports = readImports();
  for (const [rank, places] of LAYERS.entries()) {
    const files = [...imports.keys()].filter(
      (file) => file.startsWith("src/") && places.includes(placeOf(file)),
    );
    console.log(`${String(rank).padStart(2)}  ${places.join(", ")}: ${files.length} files`);
  }
  const circles = findCircles(imports);
  console.log(
    `circles: ${circles.length}`,
    ...circles.map((circle) => `\n  ${circle.join("\n  ")}`),
  );
  const upward = findUpward(imports);
  console.log(
    `imports of a higher layer: ${upward.length}`,
    ...upward.map((each) => `\n  ${each}`),
  );
}
