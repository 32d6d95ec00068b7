// A worker in TypeScript: tells, asks its parent, waits for the answer, reports. `subagent` knows which run it is.

import { ask, StalledError, tell, update } from "./client.js";

try {
  await tell("Looking around");
  const database = await ask("Which database shall I use?", { options: ["sqlite", "postgres"] });
  await update("success", `The project is set up with ${database}`);
} catch (error) {
  // So that its parent learns why. And a run that `subagent run` did not start ends only by a report.
  await update("error", error instanceof StalledError ? "nobody answered" : String(error));
  process.exitCode = 1;
}
