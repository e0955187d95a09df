/** Run by Bun itself: nothing of Node's here. */
import { createProxy } from "#proxy";
import { getEnv, serveBun } from "../../test/_serve.bun.ts";

serveBun(createProxy({ target: getEnv("TARGET") ?? "" }), Number(getEnv("PORT")));
