import { addTests } from "./_suite.ts";

addTests("fetch-deno");
