import { addTests } from "./_suite.ts";

addTests("h3");
