/** Run by Deno itself: nothing of Node's here. */
import { createProxy } from "#proxy";
import { getEnv, serveDeno } from "../../test/_serve.deno.ts";

serveDeno(createProxy({ target: getEnv("TARGET") ?? "" }).fetch, Number(getEnv("PORT")));
