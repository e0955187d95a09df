/** Fetchway on Bun, over sockets. */
import { createProxy } from "#fetchway";
import { getEnv, serveBun } from "../../test/helpers/serve.bun.ts";

serveBun(createProxy({ target: getEnv("TARGET") ?? "" }), Number(getEnv("PORT")));
