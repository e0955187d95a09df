import { callback, either, patterns, text } from "../schema/kinds.ts";
import type { Schema } from "../schema/schema.ts";

/** The options about the path of the upstream request. */
export interface PathOptions {
  /**
   * Removes a prefix from the path, before the target's base path is prepended.
   *
   * The prefix matches whole segments only: `/api` does not match `/apis`. Other paths are not changed. `pathRewrite` is
   * applied after this option.
   * @example "/api"
   */
  stripPrefix?: string;
  /**
   * Rewrites path and query before the target's base path is prepended: a map of regular expressions to replacements,
   * which are all applied in order, or a function.
   *
   * A result without a slash at its beginning gets one: `{ "^/api": "" }` turns `/api` into `/`. A function that returns
   * nothing leaves the path unchanged. A result that would leave the target's base path gets 400.
   * @example { "^/old/": "/new/" }
   */
  pathRewrite?:
    | Readonly<Record<string, string>>
    | ((
        path: string,
        request: Request,
      ) => string | undefined | void | Promise<string | undefined | void>);
}

export const pathSchema: Schema<PathOptions> = {
  stripPrefix: { kind: text(/^\//, 'use a path such as "/api"') },
  pathRewrite: {
    kind: either("use a map of patterns to strings, or a function", patterns, callback),
  },
};
