/** A proxy on Bun that only calls `fetch`. */
import { getEnv, serveBun } from "../../test/helpers/serve.bun.ts";

const target = getEnv("TARGET");

function fetchNaively(request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  return fetch(new Request(target + pathname + search, request));
}

serveBun({ fetch: fetchNaively }, Number(getEnv("PORT")));
