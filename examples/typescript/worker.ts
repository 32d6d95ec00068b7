// A worker in TypeScript: tells, asks its parent, waits for the answer, reports. SUBAGENT_RUN_ID says which run it is.

import { ask, StalledError, tell, update } from "./client.js";

try {
  await tell("Looking around");
  const database = await ask("Which database shall I use?", { options: ["sqlite", "postgres"] });
  await update("success", `The project is set up with ${database}`);
} catch (error) {
  // Without a report, the run of a worker that fails would never end.
  await update("error", error instanceof StalledError ? "nobody answered" : String(error));
  process.exitCode = 1;
}
