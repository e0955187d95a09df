/** A proxy on Deno that only calls `fetch`. */
import { getEnv, serveDeno } from "../../test/helpers/serve.deno.ts";

const target = getEnv("TARGET") ?? "";

function fetchNaively(request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  return fetch(new Request(target + pathname + search, request));
}

serveDeno(fetchNaively, Number(getEnv("PORT")));
