/** Fetchway on Bun. It uses no modules of Node. */
import { createProxy } from "#fetchway";
import { getEnv, serveBun } from "../../test/helpers/serve.bun.ts";

serveBun(createProxy({ target: getEnv("TARGET") ?? "" }), Number(getEnv("PORT")));
