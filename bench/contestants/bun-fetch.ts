/** Fetchway on Bun over Bun's `fetch`. */
import { createProxy } from "../../runtimes/fetch.ts";
import { getEnv, serveBun } from "../../test/helpers/serve.bun.ts";

const { fetch } = createProxy({ target: getEnv("TARGET") ?? "" });
serveBun({ fetch }, Number(getEnv("PORT")));
