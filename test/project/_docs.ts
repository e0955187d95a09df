/** Reads the doc strings of the options' interfaces, as `deno doc` returns them. */
import { execFileSync } from "node:child_process";
import { globSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

export interface OptionDoc {
  name: string;
  /** The first sentence of the doc string; `""` if it has none. */
  summary: string;
  /** The paragraphs of the doc string in Markdown, each in one line; a list has a line for each entry. */
  paragraphs: string[];
  /** The text of the `@default` tag. */
  preset: string | undefined;
  example: string | undefined;
  see: string | undefined;
  /** The names of all tags, in their order. */
  tags: string[];
}

/** The parts of the output of `deno doc --json` that are read here. */
interface Output {
  nodes: Record<string, { symbols: { name: string; declarations: Declaration[] }[] }>;
}
interface Declaration {
  kind: string;
  def: { properties?: Property[]; extends?: { repr: string }[] };
}
interface Property {
  name: string;
  jsDoc?: { doc?: string; tags?: Tag[] };
}
/** A tag that Deno does not know has the kind `unsupported`, and its name and text in `value`. */
interface Tag {
  kind: string;
  value?: string;
  doc?: string;
}

const interfaces: Map<string, Declaration["def"]> = new Map();

/** Runs `deno doc` once, when the first interface is read. */
function findInterface(name: string): Declaration["def"] {
  if (interfaces.size === 0) {
    const core = globSync("src/{transport.ts,{options,upstreams}/*.ts}", { cwd: root });
    const files = ["command/flags/commandoptions.ts", ...core];
    const args = ["doc", "--json", ...files];
    const json = execFileSync("node_modules/.bin/deno", args, {
      cwd: root,
      stdio: ["ignore", "pipe", "ignore"],
      maxBuffer: 16 * 1024 * 1024,
    });
    const { nodes } = JSON.parse(json.toString()) as Output;
    for (const each of Object.values(nodes).flatMap(({ symbols }) => symbols)) {
      const found = each.declarations.find(({ kind }) => kind === "interface");
      if (found !== undefined) interfaces.set(each.name, found.def);
    }
  }
  const found = interfaces.get(name);
  if (found === undefined) throw new Error(`no interface ${name}`);
  return found;
}

/** Returns the names of the interfaces that an interface extends. */
export function inheritedBy(name: string): string[] {
  return (findInterface(name).extends ?? []).map(({ repr }) => repr);
}

/** Reads the members of an interface. Members of the interfaces that it extends come first. */
export function readInterface(name: string): OptionDoc[] {
  const own = (findInterface(name).properties ?? []).map(toDoc);
  return [...inheritedBy(name).flatMap(readInterface), ...own];
}

function toDoc({ name, jsDoc = {} }: Property): OptionDoc {
  const doc = jsDoc.doc ?? "";
  const text = toLine(doc);
  const tags = (jsDoc.tags ?? []).map(toNamed);
  const textOf = (wanted: string): string | undefined => tags.find(([tag]) => tag === wanted)?.[1];
  return {
    name,
    summary: /^.+?\.(?= |$)/.exec(text)?.[0] ?? text,
    paragraphs: doc.split(/\n\s*\n/).map(toLines),
    preset: textOf("default"),
    example: textOf("example"),
    see: textOf("see"),
    tags: tags.map(([tag]) => tag),
  };
}

function toLine(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim();
}

function toLines(paragraph: string): string {
  return paragraph
    .split(/\n(?=- )/)
    .map(toLine)
    .join("\n");
}

function toNamed({ kind, doc, value = doc ?? "" }: Tag): [name: string, text: string] {
  const unsupported = /^@(\S+) ?(.*)$/s.exec(value);
  if (kind === "unsupported" && unsupported) return [unsupported[1] ?? "", unsupported[2] ?? ""];
  // Deno parses an object literal as a type, and omits its braces.
  return [kind, kind === "default" ? `{${value}}` : value];
}
