/** Fetchway on Deno. It uses no modules of Node. */
import { createProxy } from "#fetchway";
import { getEnv, serveDeno } from "../../test/helpers/serve.deno.ts";

serveDeno(createProxy({ target: getEnv("TARGET") ?? "" }).fetch, Number(getEnv("PORT")));
