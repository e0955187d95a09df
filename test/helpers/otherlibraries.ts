/** The names of the options of other proxy libraries, read from the files that these libraries install. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

const modules = join(import.meta.dirname, "../../node_modules");

function readModule(file: string): string {
  return readFileSync(join(modules, file), "utf8").replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
}

/**
 * Reads the names of a type's members: the names at the first level inside the braces that follow `head`. `head` matches
 * the text before these braces, of an interface or of any other declaration.
 */
function readMembers(file: string, head: RegExp): string[] {
  const source = readModule(file);
  const found = head.exec(source);
  if (found === null) throw new Error(`${file} has no ${head}`);
  const names: string[] = [];
  let depth = 0;
  for (const token of source
    .slice(found.index + found[0].length)
    .matchAll(/[{}()[\]]|[^{}()[\]]+/g)) {
    const [text] = token;
    if (/^[{([]$/.test(text)) depth++;
    else if (/^[})\]]$/.test(text)) {
      if (--depth === 0 && text === "}") return names;
    } else if (depth === 1) {
      // A name begins a line or follows `;`. A colon follows it, or, after a method's name, the bracket at which `text` ends.
      for (const [, name = ""] of text.matchAll(
        /(?:^|[;\n])\s*(?:readonly )?(\w+)(?=\??\s*(?::|$))/g,
      )) {
        names.push(name);
      }
    }
  }
  throw new Error(`${head} in ${file} does not end`);
}

const interfaceOf = (name: string): RegExp => new RegExp(`interface ${name}\\b[^{]*(?=\\{)`);

/** Reads the option names of a library without types: the names of all members of `options` that its code reads. */
function readCode(pattern: string): string[] {
  const files = globSync(pattern, { cwd: modules });
  return files.flatMap((file) =>
    Array.from(readModule(file).matchAll(/\boptions\.(\w+)/g), ([, name = ""]) => name),
  );
}

const httpxy = readMembers("httpxy/dist/index.d.mts", interfaceOf("ProxyServerOptions"));
const replyFrom = "@fastify/reply-from/types/index.d.ts";
const fastifyProxy = "@fastify/http-proxy/types/index.d.ts";
const vite = "vite/dist/node/index.d.ts";

const read: Record<string, string[]> = {
  "http-proxy": readCode("http-proxy/lib/**/*.js"),
  "http-proxy-middleware": [
    ...httpxy,
    ...readMembers("http-proxy-middleware/dist/types.d.ts", interfaceOf("Options")),
  ],
  httpxy: [
    ...httpxy,
    ...readMembers("httpxy/dist/index.d.mts", interfaceOf("ProxyFetchOptions")),
    ...readMembers("httpxy/dist/index.d.mts", interfaceOf("ProxyUpgradeOptions")),
  ],
  "Vite's `server.proxy`": [
    ...readMembers(vite, /interface ServerOptions\$3 (?=\{)/),
    ...readMembers(vite, interfaceOf("ProxyOptions extends")),
  ],
  "h3's `proxyRequest`": readMembers("h3/dist/h3.d.mts", interfaceOf("ProxyOptions")),
  "`hono/proxy`": [
    ...readMembers("hono/dist/types/helper/proxy/index.d.ts", interfaceOf("ProxyRequestInit")),
    ...readMembers("undici-types/fetch.d.ts", interfaceOf("RequestInit")),
  ],
  "express-http-proxy": readCode("express-http-proxy/lib/resolveOptions.js"),
  "@remix-run/fetch-proxy": readMembers(
    "@remix-run/fetch-proxy/dist/lib/fetch-proxy.d.ts",
    interfaceOf("FetchProxyOptions"),
  ),
  "fast-proxy": [
    ...readMembers("fast-proxy/types/index.d.ts", interfaceOf("FastProxyOptions")),
    ...readMembers("fast-proxy/types/index.d.ts", /opts\?: (?=\{)/),
  ],
  "@fastify/http-proxy": [
    ...readMembers(replyFrom, interfaceOf("FastifyReplyFromOptions")),
    ...readMembers(replyFrom, interfaceOf("FastifyReplyFromHooks")),
    ...readMembers(fastifyProxy, interfaceOf("FastifyHttpProxyOptions")),
    ...readMembers(fastifyProxy, interfaceOf("FastifyHttpProxyWebsocketOptionsEnabled")),
  ],
};

/** The names of the options of each library. */
export const otherLibraries: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries(read).map(([library, names]) => [library, [...new Set(names)]]),
);
