/** The proxy of one line, on Bun. */
import { getEnv, serveBun } from "../../test/_serve.bun.ts";

const target = getEnv("TARGET");

function fetchNaively(request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  return fetch(new Request(target + pathname + search, request));
}

serveBun({ fetch: fetchNaively }, Number(getEnv("PORT")));
