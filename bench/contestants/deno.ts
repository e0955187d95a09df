/** Fetchway on Deno, over sockets. */
import { createProxy } from "#fetchway";
import { getEnv, serveDeno } from "../../test/helpers/serve.deno.ts";

serveDeno(createProxy({ target: getEnv("TARGET") ?? "" }).fetch, Number(getEnv("PORT")));
