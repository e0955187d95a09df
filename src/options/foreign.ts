/** Explains what to write instead of an option of another library, or of an option in the wrong place. */

/** Names that are not options, in groups, each with what to write instead. Spaces separate the names of a group. */
export type ForeignNames = readonly (readonly [names: string, fix: string])[];

/**
 * Names that are not options of `proxyFetch`, because they belong elsewhere or to another library. Every runtime has
 * this list. Workers have no other list, because each name adds to the code that they load.
 */
const ELSEWHERE: ForeignNames = [
  ["ws", "WebSockets are tunnelled by default (`upgrades`); on Node, call `proxy.attach(server)`"],
  ["raw target", "write `proxyFetch(request, target)`"],
  ["pool agent httpAgent httpsAgent dispatcher", "the runtime keeps the connections; leave it out"],
  ["customFetch", "write `fetch`"],
  ["redirect", "write `followRedirects`"],
  ["method body fetchOptions", "pass `new Request(request, …)`"],
  [
    "cache credentials duplex integrity keepalive mode referrer referrerPolicy window propagateAbortError strictConnectionProcessing",
    "leave it out",
  ],
];

/** Returns what to write instead of a name of `table`; undefined for any other name. */
export function findFix(name: string, table: ForeignNames = ELSEWHERE): string | undefined {
  return table.find(([names]) => names.split(" ").includes(name))?.[1];
}
