import { addTests } from "./_suite.ts";

addTests("undici-hono");
