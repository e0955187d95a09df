import { guardEscape, joinTarget, parseTarget, pathOf } from "../../src/target/target.ts";
import type { Steps } from "./run.ts";

const plain = parseTarget("http://127.0.0.1:4000");
const based = parseTarget("http://127.0.0.1:4000/base/v1?key=value");
const url = new URL("http://127.0.0.1:4000/base/v1");

export const targets: Steps = {
  "find a target given as a string": () => parseTarget("http://127.0.0.1:4000"),
  "parse a target given as a URL": () => parseTarget(url),
  "join without a base path": () => joinTarget(plain, "/api/items/17?page=2"),
  "join with base path and query": () => joinTarget(based, "/api/items/17?page=2"),
  "guard an encoded path": () => guardEscape("/a%2Fb/%20c/%E4%BD%A0%E5%A5%BD"),
  "path of a URL": () => pathOf("http://shop.example:8080/api/items/17?page=2"),
  "control: new URL() of the same": () => new URL("http://shop.example:8080/api/items/17?page=2"),
};
