/** Fetchway on Deno over Deno's `fetch`. */
import { createProxy } from "../../runtimes/fetch.ts";
import { getEnv, serveDeno } from "../../test/helpers/serve.deno.ts";

serveDeno(createProxy({ target: getEnv("TARGET") ?? "" }).fetch, Number(getEnv("PORT")));
